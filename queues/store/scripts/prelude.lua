-- The common beginning of all scripts of Berth's store.
--
-- A script checks everything before it writes anything, because Redis keeps what a script wrote before it
-- failed. Answers are arrays whose first element is a word:
--   OK ...                   done, with what the script returns
--   DUP ...                  done before, with what was returned then
--   NOFENCE                  no fence is known: nothing was done
--   FENCE <highest>          the caller's fence is too low: nothing was done. As stored, with its signature
--   CORRUPT <key> <wanted>   the key holds something that Berth did not write: nothing was done

-- Return nil where `key` is absent or of type `kind`, else the CORRUPT answer.
local function wrong_type(key, kind)
  local found = redis.call('TYPE', key)
  if type(found) == 'table' then found = found.ok end
  if found ~= 'none' and found ~= kind then
    return {'CORRUPT', key, 'a ' .. kind}
  end
  return nil
end

-- Return the number of a fence, which its signature may follow; nil where there is none.
-- A Lease counts to 2^31 - 1, so that a higher fence could never be raised above.
local function fence_number(text)
  local number = tonumber(string.match(text .. ' ', '^(%d+) '))
  return number and number <= 2147483646 and number or nil
end

-- Return the highest fence as stored, or nil; and the CORRUPT answer, or nil.
local function highest_fence(key)
  local wrong = wrong_type(key, 'string')
  if wrong then return nil, wrong end
  local highest = redis.call('GET', key)
  if highest and not fence_number(highest) then
    return nil, {'CORRUPT', key, 'a whole number up to 2147483646'}
  end
  return highest or nil, nil
end

-- Return nil where a caller with `fence` may go on, otherwise the answer to return to it.
-- A fence higher than the remembered one is remembered.
local function turned_away(key, fence)
  local highest, wrong = highest_fence(key)
  if wrong then return wrong end
  if not highest then return {'NOFENCE'} end
  if fence_number(fence) < fence_number(highest) then return {'FENCE', highest} end
  if fence_number(fence) > fence_number(highest) then redis.call('SET', key, fence) end
  return nil
end

