-- Note the life of the server that holds all that was acknowledged.
--
-- KEYS  1 fence  2 life
-- ARGV  1 fence  2 life
-- Returns OK.
local away = turned_away(KEYS[1], ARGV[1]) or wrong_type(KEYS[2], 'string')
if away then return away end
redis.call('SET', KEYS[2], ARGV[2])
return {'OK'}
