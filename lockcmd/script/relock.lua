--[[ RELOCK, and the renewal of a session lock: the lock runs for a time from now, if its token
still holds it.

KEYS, ARGV  see read.lua
given      the token
timeout    ms
unit       of what is written at the lock, "ms" or "s"
retention  how long the record outlives the lock, ms
purpose    "extend"; "renew" to never shorten it: a renewal may run after a RELOCK or LOCK that gave
           the lock more time; "share", whereby an exclusive lock becomes a shared one; "exclude",
           whereby a shared one becomes exclusive if nobody else shares it; or "take", whereby the
           lock of a place in the line becomes its client's. The first request is that of the
           holder then, and for "share" those of the waiters here are behind it
wanted, proxy, how, db, tag  for "share", as for unlock.lua. For "exclude", wanted is 1 if the
           holder waits until nobody else shares the lock: then nobody else is let in. For "take" it
           is the place: the lock is not the place's alone if its owner's LOCK has found it since

Returns 1, or 0 if the token does not hold the lock, or for "take" not for the place alone. For
"share" it returns what unlock.lua does for a holder that leaves others; for "exclude" the new token,
or the old one if the lock is exclusive already, or -1 if others share the lock, or -2 if one of them
waits for the same. WRONGTYPE if a key holds something else.
]]
local given, timeout, unit, retention, purpose, wanted, proxy, how, db, tag = unpack(words)
retention = tonumber(retention)

if malformed then return redis.error_reply(WRONGTYPE) end
local at, text = expiry(tonumber(timeout), unit)
local h = sorted and holder_with(given)
if h and purpose == 'exclude' then
  -- Who waits for that is in front of the waiting proxies, as its token and a "^".
  local mine = given .. '^'
  local list = waiting_proxies(mine)
  if count_holders() > 1 then
    if wanted == '1' then
      for _, entry in ipairs(list) do
        if string.sub(entry.proxy, -1) == '^' then return -2 end
      end
      table.insert(list, 1, seen_now(mine, how, 0))
    end
    if wanted == '1' or string.find(waiting, mine .. ':', 1, true) then
      write_waiting(join(list), unit, retention)
    end
    return -1
  end
  check_rights()
  local new, r = next_token(), requests[1]
  -- The lock stays its owner's, with its note, also if another connection asks.
  local note = string.match(h.client, '^[^|!]*(![^|]*)') or ''
  r.owner, r.client = h.owner, string.gsub(r.client, '^([^|!]*)!?[^|]*', '%1' .. note)
  write_given(r, new, at, text, grace_end(), join(list), retention)
  write_lock(text, at + guard - now)
  return tonumber(new)
end
if h and purpose == 'take' then
  if h.connections ~= wanted then return 0 end
  check_rights()
  local r = requests[1]
  h.connections, h.request, h.client, h.session = r.connection, r.request, r.client, r.session
  h.expires = at
  replace_holder(h)
  write_shared(token, waiting, unit, grace, retention)
  return 1
end
if h then
  if purpose == 'renew' and at <= h.expires then return 1 end
  check_rights()
  redis.call('ZREM', KEYS[2], h.token) -- so that a full server lets the script write
  redis.call('ZADD', KEYS[2], whole(at), h.token)
  write_shared(token, waiting, unit, grace, retention)
  return purpose == 'share' and {2, 0, 0} or 1
end
if not held or state ~= 'held' or token ~= given or foreign_twin() then
  if foreign() == 'data' then return redis.error_reply(WRONGTYPE) end
  return purpose == 'share' and {0, 0, 0} or 0
end
if purpose == 'share' then
  check_rights()
  local told = waiting_proxies(proxy)
  local kept, lives = record, expires + guard - now + retention
  table.remove(requests, 1)
  local done, first, polls, n = pcall(function()
    redis.call('DEL', KEYS[2])
    sorted, state, expires = false, 'shared', nil
    replace_holder({token = token, expires = at, acquired = acquired, session = session,
      connections = connections, request = request, client = client, owner = owner})
    return let_in(1, wanted, proxy, how, unit, retention)
  end)
  if done then
    for _, entry in ipairs(told) do
      if not waits_as(entry, SHARES_AT_ALL) then break end
      publish(tag, entry.proxy, hashed(db))
    end
    return {2, first, polls, tonumber(given), n}
  end
  redis.pcall('DEL', KEYS[2]) -- as in lock.lua
  redis.call('SET', KEYS[2], kept, 'PX', whole(lives))
  return redis.error_reply(type(first) == 'table' and first.err or tostring(first))
end
if purpose == 'renew' and at <= expires then return 1 end
if purpose == 'take' and connections ~= wanted then return 0 end
write_lock(text, at + guard - now)
if purpose == 'take' then
  write_given(requests[1], token, at, text, grace_end(), waiting, retention)
  return 1
end
write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
  session = session, state = 'held', connection = connections, request = request, client = client,
  waiting = waiting, owner = owner}, retention)
return purpose == 'exclude' and tonumber(token) or 1
