--[[ FENCE: whether a token holds a lock now.

In a grace period it does, whatever the lock's key holds. Then the key is repaired, so that it alone
decides from now on: FENCE watches it, and begins again if this has changed it.

KEYS, ARGV  see read.lua
given    the token
purpose  "verify" to write nothing, and find out whether KEYS[3] still is right
KEYS[3]  for a shared lock, a key that is to expire with the token, at the latest: FENCE watches it.
         It holds the time at which the token expires. It lives for seconds only

Returns 1 or 0; for a shared lock 2 or 0, or 3 if KEYS[3] is wrong. WRONGTYPE if a key holds
something else.
]]
local given, purpose = unpack(words)
local watched = KEYS[3]

if malformed then return redis.error_reply(WRONGTYPE) end
local sharer_until = shared_until(given)
if sharer_until then
  local left, ends = sharer_until + guard - now, whole(sharer_until)
  if value ~= written then write_lock(written, expires + guard - now) end
  if not watched then return 2 end
  local right = redis.call('MGET', watched)[1] == ends
  if purpose == 'verify' then return right and 2 or 3 end
  if not right or redis.call('PTTL', watched) < math.min(left, 1000) then
    redis.call('SET', watched, ends, 'PX', whole(math.min(left, 2000)))
  end
  return 2
end
if held and state == 'held' and token == given and not foreign_twin() then
  if value ~= written then write_lock(written, expires + guard - now) end
  return 1
end
if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
return 0
