-- Make reservations be there, and others not, whatever was before.
--
-- KEYS  1 fence  2 reservations
-- ARGV  1 fence  2 number of reservations n, then n times: field, value; then the fields of those to delete
-- Returns OK. The fence is written even where it stays the same: the caller learns that Redis takes writes.
local away = turned_away(KEYS[1], ARGV[1]) or wrong_type(KEYS[2], 'hash')
if away then return away end

redis.call('SET', KEYS[1], ARGV[1])
local n = tonumber(ARGV[2])
for i = 1, n do
  redis.call('HSET', KEYS[2], ARGV[1 + 2 * i], ARGV[2 + 2 * i])
end
for i = 3 + 2 * n, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[i])
end
return {'OK'}
