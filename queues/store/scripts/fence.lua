-- Read the highest fence.
--
-- KEYS  1 fence
-- Returns OK and the fence, or NOFENCE.
local highest, wrong = highest_fence(KEYS[1])
if wrong then return wrong end
if not highest then return {'NOFENCE'} end
return {'OK', highest}
