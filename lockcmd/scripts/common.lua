--[[ Put in front of every other script here. KEYS[1] is always the lock and KEYS[2] its companion.

The lock holds the Unix time at which it expires, in seconds or ms, told apart by size; expired means now >= value.
The companion holds "v1 token expires value settles acquired session state connection client\nowner":
  expires, settles, acquired  ms; before `settles` a lock that was taken over is its holder's whatever the lock's key says
  value                       what LOCK wrote at the lock
  session                     1 while a proxy renews it, else 0
  state                       held or released
Only this server's clock is ever read.
]]
local WRONGTYPE = 'WRONGTYPE Key holds a value that is not a lock'

-- A timestamp in ms, or nil if the text is none: decimal, and a time between 2001 and 5138 in one of the two units.
-- The last form is how Lua itself prints a large number.
local function timestamp(text)
  local n = tonumber(string.match(text, '^%d+$') or string.match(text, '^%d+%.%d+$')
    or string.match(text, '^%d%.%d+e%+1[0-3]$') or nil)
  if not n then return nil end
  if n >= 1e9 and n < 1e11 then return n * 1000 end
  if n >= 1e12 and n < 1e14 then return n end
end

-- token, expires, value, settles, acquired, session, state, connection, client, owner; or nil if it is not a companion.
local function parse(companion)
  return string.match(companion, '^v1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%a+) (%S+) (%S+)\n(.*)$')
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local stored = redis.call('MGET', KEYS[1], KEYS[2])
local value, companion = stored[1], stored[2]
