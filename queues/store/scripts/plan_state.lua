-- Read the version of the plan and how many rows its tables have.
--
-- KEYS  1 version  2.. the tables
-- Returns OK, the version ('': none), then for each table its number of rows, '-1' where its key is no hash.
local answer = {'OK', ''}
if not wrong_type(KEYS[1], 'string') then answer[2] = redis.call('GET', KEYS[1]) or '' end
for i = 2, #KEYS do
  answer[#answer + 1] = wrong_type(KEYS[i], 'hash') and '-1' or tostring(redis.call('HLEN', KEYS[i]))
end
return answer
