--[[ UNLOCK: frees a lock, if it is the caller's, and hands it over.

KEYS, ARGV  see read.lua. The first request is that of the first waiter here, if it is named
wanted     what waiters of the proxy that asks want: "none", there are none; "next", the first is
           named; "fair", as "next", but proxies that have waited longer go first; "self", there are
           some, but the caller may not speak for the first; "all", the first is a LOCKALL; "free",
           foreign clients compete: leave the key free for all; or "gap": leave it free to see
           whether any do
by, proof  what proves that it is the caller's: "token"; "revoke", the same for an operator;
           "connection", the last to ask for it; "request", the connection, "/" and which of its
           requests took it; "given", the connection, "/" and the token: it was given the lock and
           can't have it any more, which frees the lock if no other connection of its owner was
           given it; "reserved", the proxy, to give back a lock that is reserved for it and whose
           waiters have left, or to say of any other that they have; or "force": any holder will do
retention  how long the record outlives the lock, ms
proxy      the one that asks
unit       of what is written at the lock, "ms" or "s"
db         the database. The release notification to a proxy is the hash of the database, ":" and
           the lock, since others can read it: see notify.lua. To the proxies of those whose lock is
           taken from them it is the same behind "lost:"
tag        "-", or in a cluster a hash tag of the lock's slot: see notify.lua
how        how the proxy that asks waits, as in the record, if its waiters must go on waiting
reserves   how long a lock is reserved for another proxy's waiter, ms; longer if its way is long
patience   how long a proxy without notifications must have waited to get its turn, ms
for_polls  how long a lock is then reserved for it, until it polls, ms; longer likewise
has        the token that the connection has, for a shared lock; or "-"

Returns {1 if the lock was freed, 2 if others share it still, otherwise 0: it was not the caller's,
or free; the token given to the first waiter, or 0; 1 if it is reserved for the proxy that asks, or
that should poll, otherwise 0; and if it was released the token that held it, or 0 for a foreign
client; to how many waiters it was given; and its holder's client}.
WRONGTYPE if a key holds something else, or with "force" another library's lock.
]]
local wanted, by, proof, retention, proxy, unit, db, tag, how, reserves, patience, for_polls, has =
  unpack(words)
retention, patience = tonumber(retention), tonumber(patience)

local kind = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end
if kind == 'other' and by == 'force' then
  return redis.error_reply("WRONGTYPE Key holds another library's lock") -- traffic.go says more
end

-- The holder of a shared lock whose proof it is.
local function sharer()
  if by == 'token' or by == 'revoke' then return holder_with(proof) end
  local name, of = string.match(proof, '^(.*)/(%d+)$')
  if by == 'given' then
    local h = holder_with(of)
    local others, found = without(name, h and h.connections or '')
    if not found then return nil end
    if #others == 0 then return h end
    check_rights()
    if string.match(h.connections, '^[^,]+') == name then
      h.request = '0'
      h.connections, h.session = promoted(others)
    else
      h.connections = table.concat(others, ',')
    end
    replace_holder(h)
    return nil
  end
  if by == 'request' then return holder_of(request_name(name, of)) end
  local h = has ~= '-' and holder_with(has)
  if h and string.match(h.connections, '^[^,]+') == proof then return h end
  return find_holder(function(h) return string.match(h.connections, '^[^,]+') == proof end)
end

local function proof_of_holder()
  if by == 'request' then return connection .. '/' .. request end
  return (by == 'token' or by == 'revoke') and token or connection
end

-- Tells another proxy of a release, or that its client has lost the lock: see publish.
local function notify(name, lost)
  return publish(tag, name, (lost and 'lost:' or '') .. hashed(db))
end

local shared, leaves = held and state == 'shared', nil
if by == 'force' then
  if not shared and not (held and state == 'held') and not kind then return {0, 0, 0} end
elseif by == 'reserved' and token
  and not (held and state == 'reserved' and connection == proof) then
  local list = waiting_proxies(proof)
  if wanted == 'none' and string.find(waiting, proof .. ':', 1, true) then
    write_waiting(join(list), unit, retention)
  end
  if list[1] and (shared or not held and not value) then notify(list[1].proxy) end
  return {0, 0, 0}
elseif shared then
  leaves = sharer()
  if not leaves then return {0, 0, 0} end
elseif not held or state ~= (by == 'reserved' and 'reserved' or 'held') or foreign_twin() then
  return {0, 0, 0}
elseif by == 'given' then
  local name, of = string.match(proof, '^(.*)/(%d+)$')
  local others, found = without(name, connections)
  if not found or of ~= token then return {0, 0, 0} end
  if #others > 0 then
    local left, of_session, last_request = table.concat(others, ','), session, request
    if name == connection then
      left, of_session = promoted(others)
      last_request = '0'
    end
    write_record({token = token, expires = expires, value = written, grace = grace,
      acquired = acquired, session = of_session, state = state, connection = left,
      request = last_request, client = client, waiting = waiting, owner = owner}, retention)
    return {0, 0, 0}
  end
elseif proof ~= proof_of_holder() then
  return {0, 0, 0}
end

-- A session may have it, which must be told: that of any of the owner's connections. While others
-- share the lock its key need not change, so a proxy that tracks it learns nothing.
if by == 'force' or by == 'revoke' or by == 'token' and leaves
  and (leaves.session == '1' or string.find(leaves.connections, ',', 1, true)) then
  local names = {leaves and leaves.connections or not shared and connections or nil}
  if shared and not leaves then
    find_holder(function(h) names[#names + 1] = h.connections end)
  end
  local told = {[proxy] = true}
  for name in string.gmatch(table.concat(names, ','), '[^,]+') do
    local holders = string.match(name, '^(.*)%-%d+~?$')
    if holders and not told[holders] then
      told[holders] = true
      notify(holders, true)
    end
  end
end

-- Takes the proxy that is next out of others, and returns it and for how long the lock is reserved
-- for it. That is the longest waiting one that listens, or that polls and has waited long enough.
-- One that should listen and does not is taken for ended; its next poll lists it again.
local function take_next(others)
  local i = 1
  local function take(reservation)
    local entry = table.remove(others, i)
    return entry.proxy, reservation + 1.5 * way(entry.how)
  end
  while i <= #others do
    local listens = notify(others[i].proxy)
    local polls = listens == nil or listens == false and waits_as(others[i], POLLS)
    if listens then return take(reserves) end
    if polls and now - others[i].since >= patience then
      return take(for_polls)
    end
    if polls then i = i + 1 else table.remove(others, i) end
  end
end

local its_token, its_client = tonumber(token), client
if kind then its_token, its_client = 0, '-' end
if shared then
  local h = leaves or read_holder(redis.call('ZRANGEBYSCORE', KEYS[2], lowest_holder, '(0',
    'LIMIT', 0, 1)[1])
  its_token, its_client = tonumber(h.token), h.client
end
local others = waiting_proxies(proxy)
local longest = waiting_proxies(nil)[1]
local after_others = (wanted == 'fair' or wanted == 'all') and longest and longest.proxy ~= proxy

local waiter = requests[1]
if leaves then
  local left = count_holders() - 1
  if left > 0 then check_rights() end
  remove_holder(leaves.token)
  if left > 0 then
    local first, polls, given = let_in(left, wanted, proxy, how, unit, retention, notify)
    return {2, first, polls, its_token, given, its_client}
  end
end

local waits = wanted ~= 'none'
for _, entry in ipairs(others) do
  if waits_as(entry, FOREIGN) then wanted, after_others = 'free', false end
end
local reserved_for, reservation
if wanted == 'none' or wanted == 'self' or after_others then
  reserved_for, reservation = take_next(others)
end
if not reserved_for and shares and wanted ~= 'free' then
  redis.call('DEL', KEYS[2])
  sorted, expires = false, nil
  local done, given, first = pcall(share, requests, 0, others, proxy, how, unit, grace_end(),
    retention)
  if done then return {1, given > 0 and first or 0, 0, its_token, given, its_client} end
  -- As in lock.lua. The lock is freed, and its waiters ask again.
  redis.pcall('DEL', KEYS[2])
  redis.call('DEL', KEYS[1])
  return {1, 0, 1, its_token, 0, its_client}
end
if not reserved_for and (wanted == 'next' or wanted == 'fair') then
  local at, text = expiry(waiter.timeout, unit)
  local given = next_token()
  write_lock(text, at + guard - now)
  write_given(waiter, given, at, text, grace_end(), join(others), retention)
  return {1, tonumber(given), 0, its_token, 1, its_client}
end

if not reserved_for and (wanted == 'self' or wanted == 'all') then
  reserved_for, reservation = proxy, reserves + 1.5 * way(how)
end
if wanted == 'all' then -- it keeps its place
  local taken = reserved_for
  others = waiting_proxies(taken ~= proxy and taken or nil)
elseif waits and reserved_for ~= proxy then
  others[#others + 1] = seen_now(proxy, wanted == 'free' and FOREIGN .. '0' or how, now)
end

local last = token or '0'
if reserved_for then
  local at, text = expiry(tonumber(reservation), 'ms')
  write_lock(text, at - now)
  write_record({token = last, expires = at, value = text, grace = grace_end(), acquired = now,
    session = '0', state = 'reserved', connection = reserved_for, request = '0', client = '-',
    waiting = join(others), owner = ''}, retention)
else
  redis.call('DEL', KEYS[1])
  -- A held lock's record can stay: the key is missing. It must list no proxy, and not live for much
  -- longer than need be. In seconds a foreign client could well write the same timestamp again.
  local stays = held and state == 'held' and grace == 0 and waiting == '-' and wanted == 'none'
    and #written == 13 and expires - acquired <= retention
  if token and not stays then
    write_released(last, 0, '0', grace_end(), join(others), retention)
  end
end
return {1, 0, reserved_for == proxy and 1 or 0, its_token, 0, its_client}
