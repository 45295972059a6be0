--[[ DONE with a value: stores it and frees the claim, if the caller has that.

KEYS, ARGV  see read.lua; KEYS[1] is the claim
KEYS[3]  the value
KEYS[4]  the record of the lock that a LOCK with the value's name has
given      the claim's token
retention  how long the record outlives the claim, ms
db, tag    the database and a hash tag, as for unlock.lua
proxy      the one that asks, which tells its own waiters
ARGV[3]  the value
ARGV[4]  "EX" or "PX", or "": it lives forever   ARGV[5]  for how long, as SET takes it

Every other proxy that waits for the claim is told: all its waiters get the value, and none the
claim.
Returns as unlock.lua, with a 1 if the value was stored. WRONGTYPE if a key holds something else, or
if LOCK has a lock of that name.
]]
local given, retention, db, tag, proxy = unpack(words)
local made, text, ttl_unit, ttl = KEYS[3], ARGV[3], ARGV[4], ARGV[5]

local kind = foreign()
if malformed or kind == 'data' then return redis.error_reply(WRONGTYPE) end
if not held or state ~= 'held' or given ~= token or foreign_twin() then return {0, 0, 0} end
local before = redis.pcall('GETRANGE', made, 0, 13)
if type(before) == 'table' then
  return redis.error_reply(string.find(before.err, 'WRONGTYPE', 1, true)
    and 'WRONGTYPE Operation against a key holding the wrong kind of value' or before.err)
end
if timestamp(before) and timestamp(before) > now - guard then
  -- Perhaps a lock. A shared lock's record is no string.
  local lock = redis.pcall('GET', KEYS[4])
  if type(lock) == 'table' or lock and string.match(lock, '^v1 %d+ %d+ (%S+) ') == before then
    return redis.error_reply('WRONGTYPE Key is a lock (of LOCK): ONCE and DONE need a name of their own')
  end
end

-- First what can be refused: then the claim is still the caller's.
if ttl_unit == '' then
  redis.call('SET', made, text)
else
  redis.call('SET', made, text, ttl_unit, ttl)
end
local told = waiting_proxies(proxy)
redis.call('DEL', KEYS[1])
write_released(token, 0, '0', grace_end(), '-', tonumber(retention))
for _, entry in ipairs(told) do publish(tag, entry.proxy, hashed(db)) end
return {1, 0, 1, tonumber(token), 0, client}
