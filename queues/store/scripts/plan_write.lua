-- Change rows of the plan, or replace whole tables.
--
-- KEYS  1 fence  2 version  3.. the tables
-- ARGV  1 fence  2 version that is built upon ('': the tables are replaced)  3 version of this write
--       then for each table: number of rows to put n, number of rows to drop m,
--       then n times field, row, then m fields
-- Returns OK, DUP where this write has been applied before, or GAP where the store has another version.
local away = turned_away(KEYS[1], ARGV[1])
if away then return away end

local is_anew = ARGV[2] == ''
local version_type = redis.call('TYPE', KEYS[2])
if type(version_type) == 'table' then version_type = version_type.ok end
local version = ''
if version_type == 'string' then version = redis.call('GET', KEYS[2]) end
if version == ARGV[3] then return {'DUP'} end

if is_anew then
  -- A call of this fence that timed out may arrive late and must not undo a later one.
  local schema, fence, number = string.match(version, '^(%d+) (%d+) (%d+)$')
  local own_schema, own_fence, own_number = string.match(ARGV[3], '^(%d+) (%d+) (%d+)$')
  if schema == own_schema and fence == own_fence and tonumber(number) > tonumber(own_number) then
    return {'GAP'}
  end
else
  if version ~= ARGV[2] then return {'GAP'} end
  for i = 3, #KEYS do
    local wrong = wrong_type(KEYS[i], 'hash')
    if wrong then return wrong end
  end
end

local at = 4
for i = 3, #KEYS do
  if is_anew then redis.call('DEL', KEYS[i]) end
  local puts, drops = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  at = at + 2
  for _ = 1, puts do
    redis.call('HSET', KEYS[i], ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  for _ = 1, drops do
    redis.call('HDEL', KEYS[i], ARGV[at])
    at = at + 1
  end
end
if version_type ~= 'string' then redis.call('DEL', KEYS[2]) end
redis.call('SET', KEYS[2], ARGV[3])
return {'OK'}
