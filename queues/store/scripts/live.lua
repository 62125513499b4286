-- Read all reservations. Presents the fence first, so that no earlier leader can add any afterwards.
--
-- KEYS  1 fence  2 reservations
-- ARGV  1 fence
-- Returns OK, then field, value, field, value, ...
local away = turned_away(KEYS[1], ARGV[1]) or wrong_type(KEYS[2], 'hash')
if away then return away end

local answer = redis.call('HGETALL', KEYS[2])
table.insert(answer, 1, 'OK')
return answer
