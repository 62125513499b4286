-- Make the given reservations exist and others not exist, whatever the state was.
--
-- KEYS  1 fence  2 reservations
-- ARGV  1 fence  2 number of reservations n, then n times: field, value; then the fields of those to delete
-- Returns OK. The fence is written even where it is unchanged, to show the caller that Redis accepts writes.
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
