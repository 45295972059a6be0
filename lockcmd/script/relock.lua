--[[ RELOCK, and the renewal of a session lock: the lock runs for a time from now, if its token
still holds it.

KEYS, ARGV  see read.lua
given      the token
timeout    ms
unit       of what is written at the lock, "ms" or "s"
retention  how long the record outlives the lock, ms
renews     1 to never shorten it: a renewal may run after a RELOCK or LOCK that gave the lock more
           time

Returns 1, or 0 if the token does not hold the lock; WRONGTYPE if a key holds something else.
]]
local given, timeout, unit, retention, renews = unpack(words)

if malformed then return redis.error_reply(WRONGTYPE) end
local at, text = expiry(tonumber(timeout), unit)
local h = sorted and holder_with(given)
if h then
  if renews == '1' and at <= h.expires then return 1 end
  check_rights()
  redis.call('ZREM', KEYS[2], h.token) -- so that a full server lets the script write
  redis.call('ZADD', KEYS[2], whole(at), h.token)
  write_shared(token, waiting, unit, grace, tonumber(retention))
  return 1
end
if not held or state ~= 'held' or token ~= given or foreign_twin() then
  if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
  return 0
end
if renews == '1' and at <= expires then return 1 end
write_lock(text, at + guard - now)
write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
  session = session, state = 'held', connection = connections, request = request, client = client,
  waiting = waiting, owner = owner}, tonumber(retention))
return 1
