-- Read all reservations. Shows the caller's fence first: from here on no earlier leader can add to them.
--
-- KEYS  1 fence  2 reservations
-- ARGV  1 fence
-- Returns OK, then field, value, field, value, ...
local away = turned_away(KEYS[1], ARGV[1]) or wrong_type(KEYS[2], 'hash')
if away then return away end

local answer = redis.call('HGETALL', KEYS[2])
table.insert(answer, 1, 'OK')
return answer
