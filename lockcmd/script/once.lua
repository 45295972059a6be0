--[[ ONCE, in front of lock.lua: takes the claim to make a value only while there is none.

KEYS, ARGV  see read.lua and lock.lua; KEYS[1] is the claim
KEYS[3]  the value
ARGV[5]  EARLY, ms, or "": a value that lives for less than that may be made again

Returns {-1, 0} if the value is there. Otherwise as lock.lua.
]]
local made, early = KEYS[3], ARGV[5]

local lives = redis.call('PTTL', made)
if lives ~= -2 and not (early ~= '' and lives >= 0 and lives < tonumber(early)) then
  return {-1, 0}
end

