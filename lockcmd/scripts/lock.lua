--[[ LOCK: takes a lock that is free, has expired, or is reserved for the caller.

KEYS, ARGV  see read.lua
A[1]  timeout, ms
A[2]  unit of what is written at the lock, "ms" or "s"
A[3]  how long the record outlives the lock, ms
A[4]  the grace period of a takeover, ms
A[5]  connection   A[6]  request   A[7]  client   A[8]  session, 0 or 1: who asks
A[9]  the proxy that asks
A[10]  mode: "try"; "first", for the first waiter of this proxy, which may take what is reserved for
       it and is recorded as waiting if it gets nothing; or "check", which takes no free lock
A[11]  how this proxy waits, as in the record

Returns {token, 0; 1 if it was taken over from the expired timestamp of a foreign client; 2 if there
is a grace period for another reason: it was taken over from one of LOCK's, or an earlier one is not
over}, with a third number if the lock was its owner's already: 1, or 2 if this connection had been
given it before. If it is held {0, 1 if by a foreign client, otherwise 0, ms until another may take
it}.
WRONGTYPE if a key holds something else; then nothing is written.
]]
local kind, foreign_until = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end
if not record and redis.call('EXISTS', KEYS[2]) == 1 then return redis.error_reply(WRONGTYPE) end

local timeout, unit, retention = tonumber(A[1]), A[2], tonumber(A[3])
local proxy, mode, how = A[9], A[10], A[11]
local same = connection == A[5] and request == A[6]
local owners = ARGV[2] ~= '' and ARGV[2] == owner

if held and state == 'held' and (same or owners) and not foreign_twin() then
  -- The same owner once more, or a waiter whose grant was lost on its way. It is never shortened.
  local at, text = expiry(timeout, unit)
  if at <= expires then at, text = expires, written end
  write_lock(text, at + guard - now)
  local all, before = without(A[5])
  table.insert(all, 1, A[5])
  if #all > 8 then all[8], all[9] = '-', nil end
  write_record({token = token, expires = at, value = text, grace = grace, acquired = acquired,
    session = A[8], state = 'held', connection = table.concat(all, ','), request = A[6],
    client = A[7], waiting = waiting, owner = owner}, retention)
  return {tonumber(token), grace_end() > 0 and 2 or 0, same and 0 or before and 2 or 1}
end

local mine = held and state == 'reserved' and connection == proxy and mode == 'first'
if mode == 'check' or kind or (held and not mine) then
  if mode == 'first' and held then
    local list = waiting_proxies(nil)
    local listed, fresh = false, false
    for _, entry in ipairs(list) do
      if entry[1] == proxy then
        listed, fresh = true, now - tonumber(entry[2]) < 400 and entry[3] == how
        entry[2], entry[3] = whole(now), how
      end
    end
    if not listed then list[#list + 1] = {proxy, whole(now), how, whole(now)} end
    if not fresh then
      write_record({token = token, expires = expires, value = written, grace = grace,
        acquired = acquired, session = session, state = state, connection = connections,
        request = request, client = client, waiting = join(list), owner = owner}, retention)
    end
  end
  return {0, kind and 1 or 0, (foreign_until or held and free_at or now) - now}
end

local taken_over = 0
if value and not mine then taken_over = value == written and 2 or 1 end
local at, text = expiry(timeout, unit)
redis.call('SET', KEYS[1], text, 'PX', whole(at + guard - now))
-- A loser's late write may still come after the winner has released the lock.
local grace_until = grace_end()
if taken_over > 0 then
  grace_until = now + tonumber(A[4])
elseif grace_until > 0 then
  taken_over = 2
end
local given = next_token()
write_record({token = given, expires = at, value = text, grace = grace_until, acquired = now,
  session = A[8], state = 'held', connection = A[5], request = A[6], client = A[7],
  waiting = join(waiting_proxies(mode == 'first' and proxy or nil)), owner = ARGV[2]}, retention)
return {tonumber(given), taken_over}
