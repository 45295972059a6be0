--[[ LOCKINFO: who holds a lock. Nothing is written.

Returns nil if it is free, else {"held" or "expired", "lockproxy", "timestamp" or "other", token, owner, client, acquired ms, expires ms,
remaining ms, session}; what is not known of another client's lock is nil. WRONGTYPE if a key holds something else.
]]
local theirs, theirs_until = foreign()
if malformed or theirs == 'data' then return redis.error_reply(WRONGTYPE) end
if theirs == 'other' then return {'held', 'other', false, false, false, false, theirs_until, theirs_until - now, 0} end

if token and state == 'held' and (held or (value and value == written)) and not anothers() then
  return {held and now < expires and 'held' or 'expired', 'lockproxy', tonumber(token), owner, client, tonumber(acquired), expires,
    math.max(expires - now, 0), tonumber(session)}
end
if not value or state == 'reserved' and value == written then return false end
return {now < until_ms and 'held' or 'expired', 'timestamp', false, false, false, false, until_ms, math.max(until_ms - now, 0), 0}
