--[[ LOCKALL at each of its locks, behind take.lua. Writes nothing by itself.

KEYS, ARGV  see read.lua and take.lua

Returns what is to be known of the lock, and what all.lua may do with it:
own      whether it is its owner's already
token    that of its owner, or one that it can be given; nil if it can't
wait     ms until another may take it, if it is its owner's or can't be taken; else nil
foreign  whether a foreign client holds it
]]
local lock = {own = own, foreign = kind ~= nil}
local since = told > 0 and told or now
local behind = not held and not kind and behind_until(since)
if own then
  lock.token, lock.wait = tonumber(token), free_at - now
elseif kind or held and not reserved or behind then
  lock.wait = (foreign_until or held and free_at or behind) - now
else
  lock.token = tonumber(next_token())
  lock.wait = mode == 'check' and 0 or nil
end

lock.give_again = give_again

-- Records that the LOCKALL waits here, if it is the first waiter.
function lock.enlist(first)
  if first and not kind then enlist(ALL .. how, since) end
  if mode == 'try' and behind then doubt_trackers() end
end

local others, given, grace_until
function lock.take(all_token)
  local at, text, taken_over
  at, text, taken_over, grace_until = take_key(reserved)
  others, given = join(waiting_proxies(proxy)), whole(all_token)
  write_given(asker, given, at, text, grace_until, others, retention)
  return {all_token, taken_over}
end

-- Frees what was taken.
function lock.undo()
  write_released(given, 0, '0', grace_until, others, retention)
  free_key()
end
return lock
