--[[ UNLOCK: free a lock, if it is the caller's, and hand it on.

A[1]  what proves it: "token"; "connection", the last to ask for it; "request"; "given", that a connection was given it and can't have it
      any more, which frees the lock if no other connection of its owner was given it; "reserved", to give
      back a lock that is reserved for a proxy whose waiters have left; or "force" for whoever holds it
A[2]  the token, the connection, the connection, "/" and which of its requests took it, the connection, "/" and
      the token, or the proxy
A[3]  how long the companion outlives the lock, ms
A[4]  the proxy that asks
A[5]  what its own waiters want: "none" (there are none); "next", the one below is the first; "self", there are some, but
         the first is not the caller's to speak for; "turn", as "next", but proxies that have waited longer go first; or "free",
         clients that don't know LOCK compete: leave the key free for all; or "gap": leave it free to see whether any do
A[6]  the first waiter's timeout, ms   A[7]  unit   A[8]  connection   A[9]  request   A[10]  client   A[11]  session; its owner is ARGV[2]
A[12]  how long a lock is reserved for another proxy's waiter, ms
A[13]  the database. What another proxy is told, on the channel "lockproxy:wake:" and its name, is the database, ":" and the lock
A[14]  "-", or in a cluster a hash tag of the lock's slot: the channel's name is "lockproxy:wake:{tag}:" and the proxy's there
A[15]  how the proxy that asks is noted if its waiters must wait on, as in lock.lua's A[11]
A[16]  how long a proxy that can't be told must have waited to get its turn, ms
A[17]  how long a lock is then reserved for it, until it looks by itself, ms

Returns {1 if the lock was freed, else 0: it was not the caller's (any more), or free;
the token given to the first waiter, or 0; 1 if it is reserved for the proxy that asks, else 0;
and if it was freed, the long way, the token that held it, or 0 for a plain client, and its holder's client},
or WRONGTYPE if a key holds something else, or with "force" what another lock library has put there.
]]
local theirs = foreign()
if malformed or theirs == 'data' or theirs == 'other' and A[1] == 'force' then return redis.error_reply(WRONGTYPE) end

local retention = tonumber(A[3])
local function proof()
  if A[1] == 'request' then return connection .. '/' .. request end
  return A[1] == 'token' and token or connection
end
if A[1] == 'force' then
  if not (held and state == 'held') and not theirs then return {0, 0, 0} end
elseif not held or state ~= (A[1] == 'reserved' and 'reserved' or 'held') or anothers() then
  return {0, 0, 0}
elseif A[1] == 'given' then
  local name, of = string.match(A[2], '^(.*)/(%d+)$')
  local others, found = without(name)
  if not found or of ~= token then return {0, 0, 0} end
  if #others > 0 then
    record({token = token, expires = expires, value = written, settles = settles, acquired = acquired, session = session, state = state,
      connection = table.concat(others, ','), request = name == connection and '0' or request, client = client, waiting = waiting,
      owner = owner}, retention)
    return {0, 0, 0}
  end
elseif A[2] ~= proof() then
  return {0, 0, 0}
end

-- Tells another proxy that the lock is reserved for its first waiter. Returns whether it heard of it, or nil if the one who
-- releases may not tell.
local function tell(proxy)
  local message = A[13] .. ':' .. KEYS[1]
  if A[14] ~= '-' then
    local heard = redis.pcall('SPUBLISH', 'lockproxy:wake:{' .. A[14] .. '}:' .. proxy, message)
    if type(heard) == 'number' then return heard > 0 end
    if not string.find(heard.err, 'Unknown Redis command', 1, true) then return nil end
    -- Before Redis 7: it reaches those who listen at any node, and counts those who listen at this one.
    return type(redis.pcall('PUBLISH', 'lockproxy:wake:' .. proxy, message)) == 'number' or nil
  end
  local heard = redis.pcall('PUBLISH', 'lockproxy:wake:' .. proxy, message)
  if type(heard) ~= 'number' then return nil end
  return heard > 0
end

-- Takes the proxy that is next out of others, and returns it and for how long the lock is reserved for it. That is the longest
-- waiting one that hears of it, or that can't be told and has waited long enough. One that should hear and doesn't is taken for
-- ended: if it isn't, its first waiter has it noted again.
local function take_next(others)
  local i = 1
  while i <= #others do
    local heard = tell(others[i][1])
    local deaf = heard == nil or heard == false and others[i][3] == '2'
    if heard then return table.remove(others, i)[1], A[12] end
    if deaf and now - tonumber(others[i][4]) >= tonumber(A[16]) then return table.remove(others, i)[1], A[17] end
    if deaf then i = i + 1 else table.remove(others, i) end
  end
end

local whose = theirs and {0, '-'} or {tonumber(token), client}
local wanted = A[5]
local others = rivals(A[4])
for _, entry in ipairs(others) do
  if entry[3] == '1' then wanted = 'free' end
end

local reserved_for, reservation
local longest = rivals(nil)[1]
if wanted == 'none' or wanted == 'self' or (wanted == 'turn' and longest and longest[1] ~= A[4]) then
  reserved_for, reservation = take_next(others)
end
if not reserved_for and (wanted == 'next' or wanted == 'turn') then
  local at, text = expiry(tonumber(A[6]), A[7])
  local given = next_token()
  rewrite(text, at + guard - now)
  record({token = given, expires = at, value = text, settles = settling(), acquired = now, session = A[11], state = 'held',
    connection = A[8], request = A[9], client = A[10], waiting = join(others), owner = ARGV[2]}, retention)
  return {1, tonumber(given), 0, whose[1], whose[2]}
end

if not reserved_for and wanted == 'self' then reserved_for, reservation = A[4], A[12] end
if wanted ~= 'none' and reserved_for ~= A[4] then
  others[#others + 1] = {A[4], whole(now), wanted == 'free' and '1' or A[15], whole(now)}
end

local last = token or '0'
if reserved_for then
  local at, text = expiry(tonumber(reservation), 'ms')
  rewrite(text, at - now)
  record({token = last, expires = at, value = text, settles = settling(), acquired = now, session = '0', state = 'reserved',
    connection = reserved_for, request = '0', client = '-', waiting = join(others), owner = ''}, retention)
else
  redis.call('DEL', KEYS[1])
  if token then
    record({token = last, expires = 0, value = '0', settles = settling(), acquired = 0, session = '0', state = 'released',
      connection = '-', request = '0', client = '-', waiting = join(others), owner = ''}, retention)
  end
end
return {1, 0, reserved_for == A[4] and 1 or 0, whose[1], whose[2]}
