--[[ LOCK: take a lock that is free or has expired.

ARGV[1]  timeout, ms
ARGV[2]  unit of what is written at the lock: "ms", or "s": rounded up, and the lock then lasts until that second
ARGV[3]  how long the companion outlives the lock, ms
ARGV[4]  settling time of a lock that is taken over from an expired one, ms
ARGV[5]  who asks: "connection client"

Returns {token, 1 if it was taken over from an expired one else 0}, or nil if it is held,
or WRONGTYPE if either key holds something else; then nothing is written.
]]
local token = clock[1] * 1000000 + clock[2]
if companion then
  local last, expires, _, settles, _, _, state = parse(companion)
  if not last then return redis.error_reply(WRONGTYPE) end
  if state == 'held' and now < tonumber(settles) and now < tonumber(expires) then return false end
  token = math.max(token, tonumber(last) + 1)
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  return redis.error_reply(WRONGTYPE)
end

local taken_over = 0
if value then
  local until_ms = timestamp(value)
  if not until_ms then return redis.error_reply(WRONGTYPE) end
  if now < until_ms then return false end
  taken_over = 1
end

local expires = now + tonumber(ARGV[1])
local written = expires
if ARGV[2] == 's' then
  written = math.ceil(expires / 1000)
  expires = written * 1000
end
written = string.format('%.0f', written)
local ttl = string.format('%.0f', expires - now)

if value then
  redis.call('SET', KEYS[1], written, 'PX', ttl)
elseif not redis.call('SET', KEYS[1], written, 'PX', ttl, 'NX') then
  return redis.error_reply(WRONGTYPE) -- MGET shows other types as missing
end
local settles = taken_over == 1 and math.min(expires, now + tonumber(ARGV[4])) or 0
redis.call('SET', KEYS[2],
  string.format('v1 %.0f %.0f %s %.0f %.0f 0 held ', token, expires, written, settles, now) .. ARGV[5] .. '\n',
  'PX', string.format('%.0f', expires - now + tonumber(ARGV[3])))
return {token, taken_over}
