--[[ LOCK: take a lock that is free, has expired, or is reserved for the caller.

A[1]  timeout, ms
A[2]  unit of what is written at the lock, "ms" or "s"
A[3]  how long the companion outlives the lock, ms
A[4]  settling time of a lock that is taken over from an expired one, ms
A[5]  connection   A[6]  request   A[7]  client   A[8]  session, 0 or 1: who asks
A[9]  the proxy that asks
A[10]  how: "try"; "first", for the first waiter of this proxy, which may take what is reserved for it and is noted as
       waiting if it gets nothing; or "check", which gets nothing even if the lock is free
A[11]  what else the proxy knows: 1 if clients that don't know LOCK compete here, 2 if it can't be told of a release, or 0

Returns {token, 0; 1 if it was taken over from the expired timestamp of a client that doesn't know LOCK; 2 if it settles for another
reason: from one of LOCK's, or a lock that was taken over has been released, or asked for by its owner again, within its settling time},
with a third if the lock was its owner's already: 1, or 2 if this connection had been given it before,
or if it is held {0, 1 if by a client that doesn't know LOCK else 0, ms until another may take it},
or WRONGTYPE if a key holds something else; then nothing is written.
]]
local theirs, theirs_until = foreign()
if malformed or theirs == 'data' then return redis.error_reply(WRONGTYPE) end
if not companion and redis.call('EXISTS', KEYS[2]) == 1 then return redis.error_reply(WRONGTYPE) end

local retention = tonumber(A[3])
local again = held and state == 'held' and
  ((connection == A[5] and request == A[6]) or (ARGV[2] ~= '' and ARGV[2] == owner)) and not anothers()

if again then
  -- The same owner once more, or a waiter whose grant's message was lost: never shortened.
  local at, text = expiry(tonumber(A[1]), A[2])
  if at <= expires then at, text = expires, written end
  rewrite(text, at + guard - now)
  local all, before = without(A[5])
  table.insert(all, 1, A[5])
  if #all > 8 then all[8], all[9] = '-', nil end
  record({token = token, expires = at, value = text, settles = settles, acquired = acquired, session = A[8], state = 'held',
    connection = table.concat(all, ','), request = A[6], client = A[7], waiting = waiting, owner = owner}, retention)
  local same = connection == A[5] and request == A[6]
  return {tonumber(token), settling() > 0 and 2 or 0, same and 0 or before and 2 or 1}
end

local mine = held and state == 'reserved' and connection == A[9] and A[10] == 'first'
if A[10] == 'check' or theirs or (held and not mine) then
  if A[10] == 'first' and held then
    local line = rivals(nil)
    local noted, fresh = false, false
    for _, entry in ipairs(line) do
      if entry[1] == A[9] then
        noted, fresh = true, now - tonumber(entry[2]) < 400 and entry[3] == A[11]
        entry[2], entry[3] = whole(now), A[11]
      end
    end
    if not noted then line[#line + 1] = {A[9], whole(now), A[11], whole(now)} end
    if not fresh then record({token = token, expires = expires, value = written, settles = settles, acquired = acquired, session = session,
      state = state, connection = connections, request = request, client = client, waiting = join(line), owner = owner}, retention) end
  end
  return {0, theirs and 1 or 0, (theirs_until or held and over or now) - now}
end

local taken_over = 0
if value and not mine then taken_over = value == written and 2 or 1 end
local at, text = expiry(tonumber(A[1]), A[2])
redis.call('SET', KEYS[1], text, 'PX', whole(at + guard - now))
-- A loser's late write may still come when the winner has released the lock: whoever is next within the time settles too.
local settled = settling()
if taken_over > 0 then settled = now + tonumber(A[4]) elseif settled > 0 then taken_over = 2 end
local given = next_token()
record({token = given, expires = at, value = text, settles = settled,
  acquired = now, session = A[8], state = 'held', connection = A[5], request = A[6], client = A[7],
  waiting = join(rivals(A[10] == 'first' and A[9] or nil)), owner = ARGV[2]}, retention)
return {tonumber(given), taken_over}
