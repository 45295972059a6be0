--[[ Put behind read.lua in front of every script: what it has read, taken apart. ]]
local A = {}
for field in string.gmatch(ARGV[1] or '', '%S+') do A[#A + 1] = field end

local guard = tonumber(A[#A])
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

local function whole(n) return string.format('%.0f', tonumber(n)) end


local token, expires, written, settles, acquired, session, state, connections, request, client, waiting, owner
local malformed = false -- the companion's key holds something that LOCK didn't write
if companion then
  token, expires, written, settles, acquired, session, state, connections, request, client, waiting, owner =
    string.match(companion, '^v1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%a+) (%S+) (%d+) (%S+) (%S+)\n(.*)$')
  malformed = not token
  if token then expires, settles = tonumber(expires), tonumber(settles) end
end

local connection = connections and string.match(connections, '^[^,]+') -- the last one to ask

local until_ms = value and timestamp(value)
-- From when on others may take what the companion says is held, or reserved. A reservation needs no guard: nobody works under it.
local over = token and (state == 'held' and expires + guard or expires)
-- Whether the companion's `connection` has the lock now: not over, and its own value at the key, or still settling.
local held = token and state ~= 'released' and now < over and (value == written or now < settles and (until_ms or not value))
if held and not value and redis.call('EXISTS', KEYS[1]) == 1 then held = false end -- it settled, and something else is there now

-- What another client has at the key, and until when, ms. "timestamp" is a live one; "other" is anything else with a TTL, such as another
-- library's lock, or the time at which a lock was taken; "data" is anything else without one. It is nil for an expired timestamp without a
-- TTL, which may be taken over, as for what LOCK has written.
local function foreign()
  if held then return nil end
  local own = token and value == written
  if until_ms and not own and now < until_ms + guard then return 'timestamp', until_ms + guard end
  if not value and redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  local ttl = redis.call('PTTL', KEYS[1])
  -- The TTL that LOCK set ends with the lock, give or take the moments that the script takes: if there is more, it is another client's.
  if ttl > (own and 2 or -1) then return 'other', now + ttl end
  return not until_ms and 'data' or nil
end

-- Whether what looks held is not the companion's: the key holds the same timestamp to the letter, but without a TTL, which LOCK always
-- sets. A client that doesn't know LOCK has put it there. A user who may not ask is taken not to meet one. It is asked where a lock's
-- holder acts on it; others are refused by the one timestamp as by the other.
local function anothers()
  if not held or value ~= written or now < settles then return false end
  local ttl = redis.pcall('PTTL', KEYS[1])
  return type(ttl) == 'number' and ttl < 0
end
