--[[ LOCKINFO: who holds a lock. Writes nothing.

KEYS, ARGV  see read.lua
what  "waiters", to be told which proxies have waiters; "holders", to be told of up to `most`
      holders, and of whatever else keeps a waiter from the lock

Returns nil if the lock is free, otherwise {"held" or "expired", "lockproxy", "timestamp" or
"other", token, owner, client, acquired ms, expires ms, remaining ms, session, "exclusive" or
"shared", holders, now, `waiting` as in the record}, without the last two for "holders"; what is not
known of a foreign client's lock is nil. Of a shared lock it is the holder with the highest token,
and the latest expiry of all. For "waiters" it is {now, `waiting` as in the record, the connection
that has the lock, or "-" if that is none's or it is shared}, and for "holders" {now, `waiting`, the
last token if anybody could take the lock now, otherwise -1, a list of holders}.
WRONGTYPE if a key holds something else.
]]
local what, most = unpack(words)

local kind, foreign_until = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end
if what == 'waiters' then
  return {now, waiting or '-', held and state == 'held' and connection or '-'}
end

local function reply(list)
  local one = list[1]
  if what ~= 'holders' then
    if one then one[12], one[13] = now, waiting or '-' end
    return one or false
  end
  return {now, waiting or '-', (held or kind) and -1 or tonumber(token or 0), list}
end

-- The reply of a lock with one holder.
local function only(...)
  local found = {...}
  found[10], found[11] = 'exclusive', 1
  return reply({found})
end
if kind == 'other' then
  return only('held', 'other', false, false, false, false, foreign_until, foreign_until - now, 0)
end

if held and state == 'shared' and not foreign_twin() then
  local list = {}
  most = what == 'holders' and tonumber(most) or 1
  local live = redis.call('ZCOUNT', KEYS[2], '(' .. whole(now - guard), '+inf')
  local over = redis.call('ZCOUNT', KEYS[2], 0, whole(now - guard))
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], lowest_holder, '(0', 'LIMIT',
      0, 3 * (most + over))) do
    local h = read_holder(line)
    local at = h.token and #list < most and shared_until(h.token)
    if at then
      if what ~= 'holders' then at = expires end
      list[#list + 1] = {now < at and 'held' or 'expired', 'lockproxy', tonumber(h.token),
        h.owner, h.client, tonumber(h.acquired), at, math.max(at - now, 0), tonumber(h.session),
        'shared', live}
    end
  end
  return reply(list)
end
local own = held or value and value == written
if token and state == 'held' and own and not foreign_twin() then
  return only(held and now < expires and 'held' or 'expired', 'lockproxy', tonumber(token), owner,
    client, tonumber(acquired), expires, math.max(expires - now, 0), tonumber(session))
end
if not value or state == 'reserved' and value == written then return reply({}) end
return only(now < until_ms and 'held' or 'expired', 'timestamp', false, false, false, false,
  until_ms, math.max(until_ms - now, 0), 0)
