-- Reserve for a whole cycle, and append to the decision log.
--
-- KEYS  1 fence  2 reservations  3 this request  4 decision log
-- ARGV  1 fence  2 request id  3 seconds to remember the request  4 length of the log  5 number of reservations n
--       then n times: field, value
--       then for each log entry: the number of its reservation (0: none), entry
-- Returns OK or DUP, then one answer for each reservation, each followed by a newline:
--       '' reserved, '=' already held by this request, '<fence> <request id>' held by that other request.
-- A value without a readable first line counts as no reservation and is overwritten.
local away = turned_away(KEYS[1], ARGV[1])
  or wrong_type(KEYS[2], 'hash') or wrong_type(KEYS[3], 'string') or wrong_type(KEYS[4], 'stream')
if away then return away end

local known = redis.call('GET', KEYS[3])
if known then return {'DUP', known} end

local n = tonumber(ARGV[5])
local answers = {}
for i = 1, n do
  local held = redis.call('HGET', KEYS[2], ARGV[4 + 2 * i])
  local fence, request = string.match(held or '', '^%d+ (%d+) (%S+)\n')
  if not request then
    answers[i] = ''
  elseif request == ARGV[2] then
    answers[i] = '='
  else
    answers[i] = fence .. ' ' .. request
  end
end

for i = 1, n do
  if answers[i] == '' then redis.call('HSET', KEYS[2], ARGV[4 + 2 * i], ARGV[5 + 2 * i]) end
end
for at = 6 + 2 * n, #ARGV, 2 do
  local answer = answers[tonumber(ARGV[at])] or ''
  if answer == '' or answer == '=' then
    redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[4], '*', 'entry', ARGV[at + 1])
  end
end
local joined = table.concat(answers, '\n')
if n > 0 then joined = joined .. '\n' end
redis.call('SET', KEYS[3], joined, 'EX', ARGV[3])
return {'OK', joined}
