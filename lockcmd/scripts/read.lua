--[[ Put in front of every other script here, but for the short ways: what they all read. KEYS[1] is always the lock and KEYS[2] its companion.

The lock holds the Unix time at which it expires, in seconds or ms, told apart by size; expired means now >= value.
The companion holds "v1 token expires value settles acquired session state connection request client waiting\nowner":
  token       the last one given out; it never goes back
  expires, settles, acquired  ms; before `settles` a lock that was taken over is its holder's whatever the lock's key says
  value       what was written at the lock
  session     1 while a proxy renews it, else 0
  state       held; reserved: kept for a short time for the first waiter of the proxy named as `connection`; or released
  connection  the connections that were given the lock, the last to ask first, with commas between: there are others only if its
              owner asked again elsewhere. A connection that can't have the lock any more is taken out; the lock is freed with the last.
              "-" stands for those beyond eight, and is never taken out
  request, client  which request of the first of these took the lock, 0 if that is not known; and that connection's address
  waiting     proxies that have waiters, the longest waiting first: "proxy:seen:how:since,…", or "-". The times are in ms. how is
              1 if clients that don't know LOCK compete there, 2 if the proxy can't be told of a release, otherwise 0
Only this server's clock is ever read.

ARGV[1]  the arguments, separated by blanks, as each script lists them: in one, since a client that has not logged in must be
         told so, and may not send more than ten arguments. The last of them, for every script, is the takeover guard, ms: for so
         long after its expiry a lock is still its holder's, and a plain timestamp is still in force. The TTL of a lock's key is longer
         by it, the timestamp isn't
ARGV[2]  the owner's name, or "", for the scripts that take one
ARGV[3] to ARGV[5]  for the short ways of lock and unlock
]]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local stored = redis.call('MGET', KEYS[1], KEYS[2])
local value, companion = stored[1], stored[2]
