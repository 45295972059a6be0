--[[ Repairs the timestamp of a lock in its grace period, if a foreign client that had lost the race
replaced it. Another client may hold the lock by now.

KEYS, ARGV  see read.lua. It takes no arguments

Returns 1 if it was repaired, 0 if that was not needed, or -1 if the grace period is over.
]]
if not token or now >= grace then return -1 end
if not held or state == 'reserved' or value == written then return 0 end
redis.call('SET', KEYS[1], written, 'PX', whole(expires + guard - now))
return 1
