--[[ FENCE: whether a token holds a lock now.

In a grace period it does, whatever the lock's key holds. Then the key is repaired, so that it alone
decides from now on: FENCE watches it, and begins again if this has changed it.

KEYS, ARGV  see read.lua
A[1]  the token

Returns 1 or 0; WRONGTYPE if a key holds something else.
]]
if malformed then return redis.error_reply(WRONGTYPE) end
if held and state == 'held' and token == A[1] and not foreign_twin() then
  if value ~= written then write_lock(written, expires + guard - now) end
  return 1
end
if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
return 0
