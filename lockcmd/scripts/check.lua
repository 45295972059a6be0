--[[ FENCE: whether a token holds a lock now.

While a lock settles it is its holder's whatever its key says. Then the key is put right, so that
from here on the key alone decides: FENCE watches it, and begins again if this has changed it.

A[1]  the token

Returns 1 or 0; WRONGTYPE if a key holds something else.
]]
if malformed then return redis.error_reply(WRONGTYPE) end
if held and state == 'held' and token == A[1] and not anothers() then
  if value ~= written then rewrite(written, expires + guard - now) end
  return 1
end
if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
return 0
