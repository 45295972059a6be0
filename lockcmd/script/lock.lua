--[[ LOCK: takes a lock that is free, has expired, or is reserved for the caller.

KEYS, ARGV  see read.lua. The first request is that of the asker, who can be given the lock
unit       of what is written at the lock, "ms" or "s"
retention  how long the record outlives the lock, ms
takeover   the grace period of a takeover, ms
proxy      the one that asks
mode       "try", if none waits at this proxy; "first", for the first waiter of this proxy, which is
           recorded as waiting if it gets nothing. Both may take what is reserved for it. "check"
           takes no free lock. For LOCKALL, see all.lua: "probe", "take" and "list"
how        how this proxy waits, as in the record
told       for "probe" and "list" since when it waits, ms, or 0 for now; for "first" since when a
           LOCKALL waits behind it at this proxy, or 0 for none
chosen     for "take" the token; for "probe" 1 if it does not wait, otherwise 0

Returns {token, 0; 1 if it was taken over from the expired timestamp of a foreign client; 2 if there
is a grace period for another reason: it was taken over from one of LOCK's, or an earlier one is not
over}, with a third number if the lock was its owner's already: 1, or 2 if this connection had been
given it before. For a shared lock the fourth is to how many it was given; their tokens follow one
another. "probe" writes nothing. If it is held {0, 1 if by a foreign client, otherwise 0, ms until
another may take it}, and a 1 if it is shared.
WRONGTYPE if a key holds something else; then nothing is written.
]]
local unit, retention, takeover, proxy, mode, how, told, chosen = unpack(words)
retention, told = tonumber(retention), tonumber(told)

local kind, foreign_until = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end

local asker = requests[1]
local shares = asker.limit ~= '-'
local same = connection == asker.connection and request == asker.request
local owners = asker.owner ~= '' and asker.owner == owner

-- The connections that were given the lock, with the one that asks in front of the others. last is
-- the first of those so far, and of_session says how it asked.
local function with_asker(others, last, of_session)
  local list, lasting = {asker.connection}, 0
  for _, name in ipairs(others) do
    if name == last and of_session == '0' then name = name .. '~' end
    if name == '-' or string.sub(name, -1) == '~' then
      lasting = lasting + 1
      if lasting == 8 then name = '-' end
    end
    if lasting <= 8 or string.sub(name, -1) ~= '~' and name ~= '-' then list[#list + 1] = name end
  end
  return table.concat(list, ',')
end

if held and state == 'held' and (same or owners) and not foreign_twin() then
  if mode == 'probe' then return {tonumber(token), 0, same and 0 or 1} end
  -- The same owner once more, or a waiter whose grant was lost on its way. It is never shortened.
  local at, text = expiry(asker.timeout, unit)
  if at <= expires then at, text = expires, written end
  write_lock(text, at + guard - now)
  local others, before = without(asker.connection, connections)
  write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
    session = asker.session, state = 'held',
    connection = with_asker(others, connection, session), request = asker.request,
    client = asker.client, waiting = waiting, owner = owner}, retention)
  return {tonumber(token), grace_end() > 0 and 2 or 0, same and 0 or before and 2 or 1}
end

if shares and not sorted then
  -- A user who can't write a sorted set must learn it before anything is written, here or by others.
  local done = redis.pcall('ZADD', KEYS[2], 'XX', 0, '-')
  local err = type(done) == 'table' and done.err
  if err and not string.find(err, 'WRONGTYPE', 1, true) and not string.find(err, 'OOM', 1, true) then
    return redis.error_reply(err)
  end
end

if shares and held and state == 'shared' then
  local asked = holder_of(request_name(asker.connection, asker.request))
  local h = asker.owner ~= '' and holder_of('@' .. asker.owner) or asked
  if h then
    same = asked and asked.token == h.token
    local others, before = without(asker.connection, h.connections)
    local last = string.match(h.connections, '^[^,]+')
    h.connections, h.request = with_asker(others, last, h.session), asker.request
    h.client, h.session = asker.client, asker.session
    h.expires = math.max(h.expires, (expiry(asker.timeout, unit)))
    replace_holder(h)
    write_shared(token, waiting, unit, grace, retention)
    return {tonumber(h.token), grace_end() > 0 and 2 or 0, same and 0 or before and 2 or 1, 1}
  end
end

-- Whether no waiter that has come earlier wants this lock for itself.
local function in_turn()
  if mode == 'try' then return #waiting_proxies(proxy) == 0 end
  for _, entry in ipairs(waiting_proxies(nil)) do
    if entry.proxy == proxy then return true end
    if not waits_as(entry, SHARES) then return false end
  end
  return true
end

-- Since when this proxy waits here, ms. A waiter in front of a LOCKALL waits at least as long: if that
-- has a place at another of its locks, those behind it there may not go ahead of the waiter here, or
-- all would wait for each other.
local function waits_since()
  if mode == 'probe' or mode == 'list' then return told > 0 and told or now end
  local since = now
  for _, entry in ipairs(waiting_proxies(nil)) do
    if entry.proxy == proxy then since = entry.since end
  end
  return mode == 'first' and told > 0 and math.min(since, told) or since
end

-- Whether another proxy has waited longer than this one, which waits since a time.
local function goes_before(entry, since)
  return entry.since < since or entry.since == since and entry.proxy < proxy
end

if shares then
  how = (asker.limit == '0' and SHARES or LIMITED) .. how
  if held and state == 'shared' and mode ~= 'check' and in_turn() and not foreign_twin() then
    local list = join(waiting_proxies(mode == 'first' and proxy or nil))
    local given, first = share(requests, count_holders(), list, unit, grace_end(), retention)
    if given > 0 then return {first, grace_end() > 0 and 2 or 0, 0, given} end
  end
end

-- What is reserved for this proxy is for its waiters. If they have left, a LOCK without WAIT takes it
-- only if nobody else waits.
local tries = mode == 'try' or mode == 'probe' and chosen == '1'
local mine = held and state == 'reserved' and connection == proxy and mode ~= 'check' and
  not (tries and #waiting_proxies(proxy) > 0)

-- Until when a waiter of another proxy goes first although the lock is free, ms, or nil. A LOCK
-- without WAIT overtakes none. A waiter gives those who have come before the time to ask when the
-- lock has run out. A LOCKALL keeps its place while a lock is free, too, and all of its locks know it
-- by the same time.
local function behind_until()
  if mine or mode == 'take' then return nil end
  local since = waits_since()
  for _, entry in ipairs(waiting_proxies(proxy)) do
    local before = goes_before(entry, since)
    if tries or before and waits_as(entry, ALL) then return now + 1000 end
    local together = shares and waits_as(entry, SHARES)
    if before and lapsed and not together then return free_at + HEAD_START + way(entry.how) end
  end
end

local behind = not held and not kind and behind_until()
if mode == 'check' or mode == 'list' or kind or (held and not mine) or behind then
  if mode == 'list' and not kind or mode == 'first' and (held or behind) then
    if mode == 'list' then how = ALL .. how end
    local since, fresh = waits_since(), false
    for _, entry in ipairs(waiting_proxies(nil)) do
      if entry.proxy == proxy then
        fresh = now - entry.seen < 400 and entry.how == how and entry.since == since
      end
    end
    if not fresh then
      local list, at = waiting_proxies(proxy), 1
      while list[at] and goes_before(list[at], since) do at = at + 1 end
      table.insert(list, at, seen_now(proxy, how, since))
      write_waiting(join(list), unit, retention)
    end
  end
  local free = foreign_until or held and free_at or behind or now
  local shared = held and state == 'shared'
  if shares and shared then -- when the first of its holders ends
    free = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. whole(now - guard), '+inf', 'WITHSCORES',
      'LIMIT', 0, 1)[2] + guard
  end
  return {0, kind and 1 or 0, free - now, shared and 1 or nil}
end

if mode == 'probe' then return {tonumber(next_token()), 0} end
local taken_over = 0
if value and not mine then taken_over = value == written and 2 or 1 end
local at, text = expiry(asker.timeout, unit)
if mine then
  write_lock(text, at + guard - now) -- it was handed over
else
  redis.call('SET', KEYS[1], text, 'PX', whole(at + guard - now))
end
local list = join(waiting_proxies((mode == 'first' or mode == 'take') and proxy or nil))
-- A loser's late write may still come after the winner has released the lock.
local grace_until = grace_end()
if taken_over > 0 then
  grace_until = now + tonumber(takeover)
elseif grace_until > 0 then
  taken_over = 2
end
if shares then
  local kept, before = not sorted and record, value
  local shared, given, first = pcall(function()
    redis.call('DEL', KEYS[2])
    sorted, expires, value = false, nil, text
    return share(requests, 0, list, unit, grace_until, retention)
  end)
  if shared then return {first, taken_over, 0, given} end
  -- The user lacks a right. Or the lock's slot moves to another node: then a key that is missing
  -- here can't be written.
  redis.pcall('DEL', KEYS[2])
  if kept then redis.pcall('SET', KEYS[2], kept, 'PX', retention) end
  -- A lock that was taken over has expired: its timestamp can be put back.
  if before then
    redis.call('SET', KEYS[1], before)
  elseif type(redis.pcall('DEL', KEYS[1])) == 'table' then -- it is DEL that the user may not
    redis.call('SET', KEYS[1], text, 'PX', 1)
  end
  local err = type(given) == 'table' and given.err or tostring(given)
  if string.find(err, 'non local key', 1, true) then
    err = 'TRYAGAIN the slot of the lock is moving: ask again'
  end
  return redis.error_reply(err)
end
local given = mode == 'take' and chosen or next_token()
write_record({token = given, expires = at, value = text, grace = grace_until, acquired = now,
  session = asker.session, state = 'held', connection = asker.connection,
  request = asker.request, client = asker.client, waiting = list, owner = asker.owner}, retention)
return {tonumber(given), taken_over}
