-- Read the end of the decision log.
--
-- KEYS  1 decision log
-- ARGV  1 how many
-- Returns OK, then the entries, the newest first.
local wrong = wrong_type(KEYS[1], 'stream')
if wrong then return wrong end

local answer = {'OK'}
for _, line in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])) do
  answer[#answer + 1] = line[2][2]
end
return answer
