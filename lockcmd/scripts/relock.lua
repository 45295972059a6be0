--[[ RELOCK, and the renewing of a session lock: let a lock run for a time from now, if its token still holds it.

A[1]  the token
A[2]  timeout, ms
A[3]  unit of what is written at the lock, "ms" or "s"
A[4]  how long the companion outlives the lock, ms
A[5]  1 to never shorten it: a renewal may come behind a RELOCK or LOCK that gave the lock more time

Returns 1, or 0 if the token doesn't hold the lock (any more); WRONGTYPE if a key holds something else.
]]
if malformed then return redis.error_reply(WRONGTYPE) end
if not held or state ~= 'held' or token ~= A[1] or anothers() then
  if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
  return 0
end
local at, text = expiry(tonumber(A[2]), A[3])
if A[5] == '1' and at <= expires then return 1 end
rewrite(text, at + guard - now)
record({token = token, expires = at, value = text, settles = settles, acquired = acquired, session = session, state = 'held',
  connection = connections, request = request, client = client, waiting = waiting, owner = owner}, tonumber(A[4]))
return 1
