-- Read tables of the plan.
--
-- KEYS  1 version  2.. the tables
-- Returns OK, the version ('': none), then for each table '-1' where its key holds another type, otherwise
-- the number of its rows n and then n times field, row.
local answer = {'OK', ''}
if not wrong_type(KEYS[1], 'string') then answer[2] = redis.call('GET', KEYS[1]) or '' end
for i = 2, #KEYS do
  if wrong_type(KEYS[i], 'hash') then
    answer[#answer + 1] = '-1'
  else
    local flat = redis.call('HGETALL', KEYS[i])
    answer[#answer + 1] = tostring(#flat / 2)
    for _, part in ipairs(flat) do answer[#answer + 1] = part end
  end
end
return answer
