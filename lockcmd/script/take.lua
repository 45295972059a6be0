--[[ Behind shared.lua in LOCK and LOCKALL: what the two have in common. The first request is that
of the asker, who can be given the lock.

unit       of what is written at the lock, "ms" or "s"
retention  how long the record outlives the lock, ms
takeover   the grace period of a takeover, ms
proxy      the one that asks
mode       "try", if none waits at this proxy; "first", for the first waiter of this proxy, which is
           recorded as waiting if it gets nothing. Both may take what is reserved for it. "check"
           takes no free lock
how        how this proxy waits, as in the record
told       since when a LOCKALL waits at this proxy, which is the asker or waits behind it, ms; or 0
ends       until when the proxy waits for the answer, by this server's clock, ms, with 13 digits;
           9999999999999 is for ever. Nothing is taken or written then or later, and the answer is
           the error "LATE" with the time now: the question may have been on its way for long, and
           nobody would have the lock
]]
local unit, retention, takeover, proxy, mode, how, told, ends = unpack(words)
retention, told, ends = tonumber(retention), tonumber(told), tonumber(ends)
if now >= ends then return redis.error_reply('LATE ' .. whole(now)) end

local kind, foreign_until = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end

local asker = requests[1]
local same = connection == asker.connection and request == asker.request
-- Whether the asker, or its owner, has the lock for itself.
local own = held and state == 'held' and (same or asker.owner ~= '' and asker.owner == owner)
  and not foreign_twin()

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

-- A place in the line only finds that its owner has the lock, which may have taken it over from the
-- place while the question was on its way.
local only_finds = not same and string.find(asker.connection, 'p%d+$')

-- Gives the lock once more to its owner, or to a waiter whose grant was lost on its way. It is
-- never shortened. Returns what LOCK does.
local give_again = own and function()
  if only_finds then return {tonumber(token), in_grace(), 1} end
  local at, text = expiry(asker.timeout, unit)
  if at <= expires then at, text = expires, written end
  write_lock(text, at + guard - now)
  local others, before = without(asker.connection, connections)
  write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
    session = asker.session, state = 'held',
    connection = with_asker(others, connection, session), request = asker.request,
    client = asker.client, waiting = waiting, owner = owner}, retention)
  return {tonumber(token), in_grace(), same and 0 or before and 2 or 1}
end

-- Whether another proxy has waited longer than this one, which waits since a time.
local function goes_before(entry, since)
  return entry.since < since or entry.since == since and entry.proxy < proxy
end

-- What is reserved for this proxy is for its waiters. If they have left, a LOCK without WAIT takes
-- it only if nobody else waits.
local reserved = held and state == 'reserved' and connection == proxy
  and not (mode == 'try' and #waiting_proxies(proxy) > 0)

-- Until when a waiter of another proxy goes first although the lock is free, ms, or nil. A LOCK
-- without WAIT overtakes none. A waiter gives those who have come before the time to ask when the
-- lock has run out. A LOCKALL keeps its place while a lock is free, too, and all of its locks know
-- it by the same time.
local function behind_until(since)
  for _, entry in ipairs(waiting_proxies(proxy)) do
    local before = goes_before(entry, since)
    if mode == 'try' or before and waits_as(entry, ALL) then return now + 1000 end
    local together = shares and waits_as(entry, SHARES)
    if before and lapsed and not together then return free_at + HEAD_START + way(entry.how) end
  end
end

-- Records this proxy as waiting since a time, unless that was done lately.
local function enlist(as, since)
  for _, entry in ipairs(waiting_proxies(nil)) do
    if entry.proxy == proxy and now - entry.seen < 400 and entry.how == as
      and entry.since == since then
      return
    end
  end
  local list, at = waiting_proxies(proxy), 1
  while list[at] and goes_before(list[at], since) do at = at + 1 end
  table.insert(list, at, seen_now(proxy, as, since))
  write_waiting(join(list), unit, retention)
end

-- A proxy that tracks a lock asks at once when it is free. If it does not, it may have ended: so
-- for a LOCK without WAIT that it keeps from the lock, it counts as waiting for no more than a
-- second.
local function doubt_trackers()
  local list, doubted = waiting_proxies(nil), false
  for i, entry in ipairs(list) do
    if waits_as(entry, TRACKS) then
      list[i], doubted = seen_now(entry.proxy, string.gsub(entry.how, TRACKS, ''), entry.since), true
    end
  end
  if doubted then write_waiting(join(list), unit, retention) end
end

-- Writes the key of a lock that is taken; mine says that it was reserved. Returns until when it is,
-- what is written there, what LOCK says of the grace period, and the end of that.
local function take_key(mine)
  local taken_over = 0
  if value and not mine then taken_over = value == written and 2 or 1 end
  local at, text = expiry(asker.timeout, unit)
  if mine then
    write_lock(text, at + guard - now) -- it was handed over
  else
    redis.call('SET', KEYS[1], text, 'PX', whole(at + guard - now))
  end
  -- A loser's late write may still come after the winner has released the lock.
  local grace_until = grace_end()
  if taken_over > 0 then
    grace_until = now + takeover
  elseif grace_until > 0 then
    taken_over = 2
  end
  return at, text, taken_over, grace_until
end

-- Frees the key of a lock that was taken in this script, for a user who may not DEL, too.
local function free_key()
  if type(redis.pcall('DEL', KEYS[1])) == 'table' then redis.call('SET', KEYS[1], '0', 'PX', 1) end
end
