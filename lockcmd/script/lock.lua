--[[ LOCK: takes a lock that is free, has expired, or is reserved for the caller.

KEYS, ARGV  see read.lua and take.lua

Returns {token, 0; 1 if it was taken over from the expired timestamp of a foreign client; 2 if there
is a grace period for another reason: it was taken over from one of LOCK's, or an earlier one is not
over}, with a third number if the lock was its owner's already: 1, or 2 if this connection had been
given it before. For a shared lock the fourth is to how many it was given; their tokens follow one
another. If it is held {0, 1 if by a foreign client, otherwise 0, ms until another may take it, 1 if
it is shared, otherwise 0, the time now, ms}.
WRONGTYPE if a key holds something else; then nothing is written.
]]
if own then return give_again() end

if shares and not sorted then
  -- A user who can't write a sorted set must learn it before anything is written.
  local done = redis.pcall('ZADD', KEYS[2], 'XX', 0, '-')
  local err = type(done) == 'table' and done.err
  if err and not string.find(err, 'WRONGTYPE', 1, true)
    and not string.find(err, 'OOM', 1, true) then
    return redis.error_reply(err)
  end
end

if shares and held and state == 'shared' then
  check_rights()
  local asked = holder_of(request_name(asker.connection, asker.request))
  local h = asker.owner ~= '' and holder_of('@' .. asker.owner) or asked
  if h then
    same = asked and asked.token == h.token
    if only_finds and not same then return {tonumber(h.token), in_grace(), 1, 1} end
    local others, before = without(asker.connection, h.connections)
    local last = string.match(h.connections, '^[^,]+')
    h.connections, h.request = with_asker(others, last, h.session), asker.request
    h.client, h.session = asker.client, asker.session
    h.expires = math.max(h.expires, (expiry(asker.timeout, unit)))
    replace_holder(h)
    write_shared(token, waiting, unit, grace, retention)
    return {tonumber(h.token), in_grace(), same and 0 or before and 2 or 1, 1}
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

-- Since when this proxy waits here, ms. A waiter in front of a LOCKALL waits at least as long: if
-- that has a place at another of its locks, those behind it there may not go ahead of the waiter
-- here, or all would wait for each other.
local function waits_since()
  local since = now
  for _, entry in ipairs(waiting_proxies(nil)) do
    if entry.proxy == proxy then since = entry.since end
  end
  return mode == 'first' and told > 0 and math.min(since, told) or since
end

if shares then
  if held and state == 'shared' and mode ~= 'check' and in_turn() and not foreign_twin() then
    local others = waiting_proxies(mode == 'first' and proxy or nil)
    local given, first = share(requests, count_holders(), others, proxy, how, unit, grace_end(),
      retention)
    if given > 0 then return {first, in_grace(), 0, given} end
  end
end

local mine = reserved and mode ~= 'check'
local behind = not held and not kind and behind_until(waits_since())
if mode == 'check' or kind or held and not mine or behind then
  if mode == 'first' and (held or behind) then enlist(letter_of(asker.limit) .. how, waits_since()) end
  if mode == 'try' and behind then doubt_trackers() end
  local free = foreign_until or held and free_at or behind or now
  local shared = held and state == 'shared'
  if shares and shared then -- when the first of its holders ends
    free = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. whole(now - guard), '+inf', 'WITHSCORES',
      'LIMIT', 0, 1)[2] + guard
  end
  return {0, kind and 1 or 0, free - now, shared and 1 or 0, now}
end

local at, text, taken_over, grace_until = take_key(mine)
local others = waiting_proxies(mode == 'first' and proxy or nil)
if shares then
  local kept, before = not sorted and record, value
  local shared, given, first = pcall(function()
    redis.call('DEL', KEYS[2])
    sorted, expires, value = false, nil, text
    return share(requests, 0, others, proxy, how, unit, grace_until, retention)
  end)
  if shared then return {first, taken_over, 0, given} end
  -- The user lacks a right. Or the lock's slot moves to another node: then a key that is missing
  -- here can't be written.
  redis.pcall('DEL', KEYS[2])
  if kept then redis.pcall('SET', KEYS[2], kept, 'PX', retention) end
  -- A lock that was taken over has expired: its timestamp can be put back.
  if before then
    redis.call('SET', KEYS[1], before)
  else
    free_key()
  end
  local err = type(given) == 'table' and given.err or tostring(given)
  if string.find(err, 'non local key', 1, true) then
    err = 'TRYAGAIN the slot of the lock is moving: ask again'
  end
  return redis.error_reply(err)
end
local given = next_token()
write_given(asker, given, at, text, grace_until, join(others), retention)
return {tonumber(given), taken_over}
