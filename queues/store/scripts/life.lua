-- Read the life of the server that holds all that was acknowledged.
--
-- KEYS  1 life
-- Returns OK and the life ('': none).
local wrong = wrong_type(KEYS[1], 'string')
if wrong then return wrong end
return {'OK', redis.call('GET', KEYS[1]) or ''}
