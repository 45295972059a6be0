--[[ LOCKINFO: who holds a lock. Writes nothing.

KEYS, ARGV  see read.lua
A[1]  "waiters", to be told which proxies have waiters

Returns nil if the lock is free, otherwise {"held" or "expired", "lockproxy", "timestamp" or
"other", token, owner, client, acquired ms, expires ms, remaining ms, session}; what is not known of
a foreign client's lock is nil. For "waiters" it is {now, `waiting` as in the record}. WRONGTYPE if
a key holds something else.
]]
local kind, foreign_until = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end
if A[1] == 'waiters' then return {now, waiting or '-'} end
if kind == 'other' then
  return {'held', 'other', false, false, false, false, foreign_until, foreign_until - now, 0}
end

local own = held or value and value == written
if token and state == 'held' and own and not foreign_twin() then
  return {held and now < expires and 'held' or 'expired', 'lockproxy', tonumber(token), owner,
    client, tonumber(acquired), expires, math.max(expires - now, 0), tonumber(session)}
end
if not value or state == 'reserved' and value == written then return false end
return {now < until_ms and 'held' or 'expired', 'timestamp', false, false, false, false, until_ms,
  math.max(until_ms - now, 0), 0}
