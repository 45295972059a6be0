--[[ In each script here, behind the fast paths: takes the lock and its record apart.

KEYS[1]  the lock. It holds the Unix time at which it expires, in seconds or ms, told apart by
         size. It has expired when now >= that time.
KEYS[2]  its record: "v1 token expires value grace acquired session state connection request client
         waiting\nowner", in one line up to the \n
  token       the last one given out; it never decreases
  expires, grace, acquired  ms. grace is the end of the grace period after a takeover: until then
              the lock belongs to its holder, whatever the lock's key holds
  value       what was written at the lock
  session     1 while a proxy renews it, otherwise 0
  state       held; reserved: kept for a short time for the first waiter of the proxy that is named
              as `connection`; or released. The first two are over as soon as the key is missing,
              outside a grace period: so UNLOCK mostly leaves the record as it is. Of a released
              one expires is 0, or when it ran out, if that was just now and others wait
  connection  the connections that were given the lock, the last to ask first, with commas between.
              There are several only if the owner asked again elsewhere. A connection that can't
              have the lock any more is taken out; the lock is freed with the last. Those that asked
              without SESSION have a "~" behind them, except for the first; if there are more than
              eight, "-" stands for the oldest of them, and is never taken out: such a lock lasts
              until its timeout, whichever connections close
  request, client  which request of the first of these took the lock, 0 if that is not known; and
              that connection's address, with "!" and its note in base64 behind it if it has one,
              and then with "|" and its name if it has one
  waiting     proxies that have waiters, the longest waiting first: "proxy:seen:how:since,…", or
              "-". A holder that waits until it is the only one is in front: see relock.lua. The
              times are in ms. how is letters, and how many times 100 ms, or part of it, a round
              trip from there takes, but 0 for less than 50 ms:
                f  foreign clients compete there
                p  it polls, since it gets no release notifications
                s  its first waiter wants to share the lock
                l  the same, up to a limit
                a  its first waiter is a LOCKALL, whose place counts for free locks, too
                t  it tracks the lock, which has not changed for a second, and polls seldom

A shared lock's record is a sorted set. Its members, by their scores:
  -inf     the same line, in the state shared. token is the last one given out, expires the latest
           expiry of all holders. connection, request, client and owner are empty
  -token   a holder: "token acquired session connection request client\nowner". At the same score
           is the request that took it, as "=connection/request", unless that is not known, and
           its owner, if it has one, as "@owner": so both are found again at once
  expires  its token. When that is over, the holder may be left out

ARGV[1]  words with blanks between, which each script names at its top, in order. They are in one,
         because a client that has not logged in may not send more than ten arguments, and must be
         told to log in. Behind them is the takeover guard, ms: for so long after its expiry a lock
         still belongs to its holder, and a foreign timestamp is in force. The TTL of a lock's key
         is longer by it, the timestamp is not
ARGV[2]  for the scripts that give a lock out: see requests.lua
ARGV[3] to ARGV[5]  for the fast paths of lock and unlock

Foreign clients lock with SETNX and timestamps, and know no LOCK. Only this server's clock counts.
]]
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local words = {}
for word in string.gmatch(ARGV[1] or '', '%S+') do words[#words + 1] = word end

local guard = tonumber(words[#words])
local WRONGTYPE = 'WRONGTYPE Key holds a value that is not a lock: choose another name for the lock'

-- A timestamp in ms, or nil if the text is none: a decimal number, and a time between 2001 and 5138
-- in one of the two units. The last form is how Lua prints a large number.
local function timestamp(text)
  local n = tonumber(string.match(text, '^%d+$') or string.match(text, '^%d+%.%d+$')
    or string.match(text, '^%d%.%d+e%+1[0-3]$') or nil)
  if not n then return nil end
  if n >= 1e9 and n < 1e11 then return n * 1000 end
  if n >= 1e12 and n < 1e14 then return n end
end

local function whole(n) return string.format('%.0f', tonumber(n)) end

local token, expires, written, grace, acquired, session, state
local connections, request, client, waiting, owner
local malformed = false -- LOCK did not write what the record's key holds
local sorted = not record and redis.call('EXISTS', KEYS[2]) == 1
if sorted then
  local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)
  if first.err and not string.find(first.err, 'WRONGTYPE', 1, true) then
    return redis.error_reply(first.err)
  end
  record = first[1] or ''
end
if record then
  token, expires, written, grace, acquired, session, state, connections, request, client, waiting,
    owner = string.match(record,
      '^v1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%a+) (%S+) (%d+) (%S+) (%S+)\n(.*)$')
  malformed = not token or sorted ~= (state == 'shared')
  if token then expires, grace = tonumber(expires), tonumber(grace) end
end

local connection = connections and string.match(connections, '^[^,]+') -- the last one to ask

local until_ms = value and timestamp(value)
-- When others may take what is held or reserved. A reservation needs no guard: nobody uses it yet.
local free_at = token and (state == 'reserved' and expires or expires + guard)
-- Whether `connection` has the lock now: its time is not over, and the key holds its own value, or
-- the grace period is not over.
local held = token and state ~= 'released' and now < free_at
  and (value == written or now < grace and (until_ms or not value))
if held and not value and redis.call('EXISTS', KEYS[1]) == 1 then
  held = false -- in the grace period, and the key holds another type now
end

-- What a foreign client has at the key, and until when, ms. "timestamp" is a live one. "other" is
-- anything else with a TTL, such as another library's lock, or the time at which a lock was taken.
-- "data" is anything else without one. It is nil for what LOCK has written, and for an expired
-- timestamp without a TTL, which may be taken over.
local function foreign()
  if held then return nil end
  local own = token and value == written
  if until_ms and not own and now < until_ms + guard then return 'timestamp', until_ms + guard end
  if not value and redis.call('EXISTS', KEYS[1]) == 0 then return nil end
  local ttl = redis.call('PTTL', KEYS[1])
  -- The TTL that LOCK set ends with the lock, except for the moments that the script takes.
  if ttl > (own and 2 or -1) then return 'other', now + ttl end
  return not until_ms and 'data' or nil
end

-- Whether a foreign client has written the very timestamp that the record names: it has no TTL,
-- which LOCK always sets. If the user may not ask for the TTL, the answer is no. Only what a holder
-- may do depends on it: others are refused by either timestamp.
local function foreign_twin()
  if not held or value ~= written or now < grace then return false end
  local ttl = redis.pcall('PTTL', KEYS[1])
  return type(ttl) == 'number' and ttl < 0
end

-- When the time of a shared lock's holder is over, ms; nil if the token is none's, or it is over.
local function shared_until(holder)
  if not held or state ~= 'shared' or foreign_twin() then return nil end
  local at = tonumber(redis.call('ZSCORE', KEYS[2], holder) or nil)
  return at and now < at + guard and at or nil
end

-- No holder's score is lower. '(-inf' excludes the first line as well, but not on every store.
local lowest_holder = '-9007199254740992'

-- A holder of a shared lock, from its line in the record.
local function read_holder(line)
  local h = {}
  h.token, h.acquired, h.session, h.connections, h.request, h.client, h.owner =
    string.match(line, '^(%d+) (%d+) (%d) (%S+) (%d+) (%S+)\n(.*)$')
  return h
end
