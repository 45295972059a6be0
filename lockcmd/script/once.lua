--[[ ONCE, in front of lock.lua: takes the claim to make a value only while there is none.

KEYS, ARGV  see read.lua and lock.lua; KEYS[1] is the claim
KEYS[3]  the value
ARGV[5]  EARLY, ms, or "": a value that lives for less than that may be made again

Returns {-1, 0} if the value is there. Otherwise as lock.lua.
]]
local lives = redis.call('PTTL', KEYS[3])
if lives ~= -2 and not (ARGV[5] ~= '' and lives >= 0 and lives < tonumber(ARGV[5])) then
  return {-1, 0}
end

