-- Delete reservations: the cluster shows them, or their decision was withdrawn.
--
-- KEYS  1 fence  2 reservations
-- ARGV  1 fence, then the fields
-- Returns OK and the number of reservations that existed.
local away = turned_away(KEYS[1], ARGV[1]) or wrong_type(KEYS[2], 'hash')
if away then return away end

local removed = 0
for i = 2, #ARGV do
  removed = removed + redis.call('HDEL', KEYS[2], ARGV[i])
end
return {'OK', tostring(removed)}
