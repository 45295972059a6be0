--[[ Put the timestamp of a lock that was taken over right again, if a plain client that had lost the race replaced it.

ARGV[1]  the token of the taking over

Returns 1 if it was put right, 0 if it was right, or -1 if there is nothing to look after any more:
settled, released, taken by another, or the key holds something that is not a timestamp.
]]
if not companion then return -1 end
local token, expires, written, settles, _, _, state = parse(companion)
if token ~= ARGV[1] or state ~= 'held' or now >= tonumber(settles) or now >= tonumber(expires) then return -1 end
if value == written then return 0 end
if value and not timestamp(value) then return -1 end

local ttl = string.format('%.0f', tonumber(expires) - now)
if value then
  redis.call('SET', KEYS[1], written, 'PX', ttl)
elseif not redis.call('SET', KEYS[1], written, 'PX', ttl, 'NX') then
  return -1
end
return 1
