--[[ Put the timestamp of a lock that was taken over right again, if a plain client that had lost the race replaced it. Whoever has
the lock by now: it settles until the time is over.

Returns 1 if it was put right, 0 if there was nothing to put right, or -1 if there is nothing to look after any more.
]]
if not token or now >= settles then return -1 end
if not held or state ~= 'held' or value == written then return 0 end
redis.call('SET', KEYS[1], written, 'PX', whole(expires + guard - now))
return 1
