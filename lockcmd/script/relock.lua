--[[ RELOCK, and the renewal of a session lock: the lock runs for a time from now, if its token
still holds it.

KEYS, ARGV  see read.lua
A[1]  the token
A[2]  timeout, ms
A[3]  unit of what is written at the lock, "ms" or "s"
A[4]  how long the record outlives the lock, ms
A[5]  1 to never shorten it: a renewal may run after a RELOCK or LOCK that gave the lock more time

Returns 1, or 0 if the token does not hold the lock; WRONGTYPE if a key holds something else.
]]
if malformed then return redis.error_reply(WRONGTYPE) end
local at, text = expiry(tonumber(A[2]), A[3])
local h = holder_with(A[1])
if h then
  if A[5] == '1' and at <= h.expires then return 1 end
  redis.call('ZREM', KEYS[2], h.token) -- so that a full server lets the script write
  redis.call('ZADD', KEYS[2], whole(at), h.token)
  write_shared(token, waiting, A[3], grace, tonumber(A[4]))
  return 1
end
if not held or state ~= 'held' or token ~= A[1] or foreign_twin() then
  if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
  return 0
end
if A[5] == '1' and at <= expires then return 1 end
write_lock(text, at + guard - now)
write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
  session = session, state = 'held', connection = connections, request = request, client = client,
  waiting = waiting, owner = owner}, tonumber(A[4]))
return 1
