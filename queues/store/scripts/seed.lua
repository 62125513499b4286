-- Write the fence where there is none or a lower one.
--
-- KEYS  1 fence
-- ARGV  1 fence
-- Returns OK, or FENCE where there is a higher one.
local highest, wrong = highest_fence(KEYS[1])
if wrong then return wrong end
if highest and fence_number(highest) > fence_number(ARGV[1]) then return {'FENCE', highest} end
redis.call('SET', KEYS[1], ARGV[1])
return {'OK'}
