--[[ UNLOCK: free a lock, if it is the caller's.

ARGV[1]  what proves it: "token", "connection", or "force" for whoever holds it
ARGV[2]  the token or the connection
ARGV[3]  how long the companion outlives the release, ms

Returns 1 if the lock was freed; 0 if it was not the caller's (any more), or free; WRONGTYPE if a key holds something else.
]]
local until_ms
if value then
  until_ms = timestamp(value)
  if not until_ms then return redis.error_reply(WRONGTYPE) end
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply(WRONGTYPE)
end

local token, expires, written, settles, state, connection, _
if companion then
  token, expires, written, settles, _, _, state, connection = parse(companion)
  if not token then return redis.error_reply(WRONGTYPE) end
end
local held = state == 'held' and now < tonumber(expires) and (value == written or now < tonumber(settles))

if ARGV[1] == 'force' then
  if not held and not (value and now < until_ms) then return 0 end
elseif not held or ARGV[2] ~= (ARGV[1] == 'token' and token or connection) then
  return 0
end

redis.call('DEL', KEYS[1])
if token then
  redis.call('SET', KEYS[2], 'v1 ' .. token .. ' 0 0 0 0 0 released - -\n', 'PX', ARGV[3])
end
return 1
