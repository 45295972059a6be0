--[[ LOCKALL: takes several locks or none, by all_each.lua, a function in `scripts`.

KEYS  the two keys of each lock
ARGV[1], ARGV[2]  as for lock.lua; with the mode "first" it is the first waiter of each lock at this
         proxy; with "check" others wait for one of them here, and it takes none that is free
ARGV[3]  1 for each lock whose first waiter here it is, otherwise 0, as in "0110": there it is
         recorded as waiting if it gets nothing

Returns {the token of all, 0 or 1 if a grace period runs for one of them, 0; 1 if they were its
owner's already; 2 if this connection had been given them before}. If one is held {0, ms until
another may take it, the time now, ms}, and then which locks foreign clients hold, from 1 on.
WRONGTYPE if a key holds something else; then nothing is written.
]]
local first_at = ARGV[3]

local clock = redis.call('TIME')
local values = redis.call('MGET', unpack(KEYS))
local locks = {}
local token, own, foreign, wait, held = 0, 0, {}, 0, false
for i = 1, #KEYS / 2 do
  local lock = scripts.all_each({KEYS[2 * i - 1], KEYS[2 * i]}, ARGV, values[2 * i - 1],
    values[2 * i], clock)
  if lock.err then return lock end
  if lock.own then
    held = held or own > 0 and token ~= lock.token
    own, wait = own + 1, math.max(wait, lock.wait)
  elseif lock.wait then
    held, wait = true, math.max(wait, lock.wait)
    if lock.foreign then foreign[#foreign + 1] = i end
  end
  token = math.max(token, lock.token or 0)
  locks[i] = lock
end
if held or own > 0 and own < #locks then
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  for i, lock in ipairs(locks) do
    lock.enlist(string.sub(first_at, i, i) == '1')
  end
  return {0, wait, now, unpack(foreign)}
end

local grace, before = 0, 0
for i, lock in ipairs(locks) do
  local given, found = pcall(own > 0 and lock.give_again or lock.take, token)
  if not given then -- the user may not write it: those taken before are free again
    for j = 1, own > 0 and 0 or i - 1 do locks[j].undo() end
    return redis.error_reply(type(found) == 'table' and found.err or tostring(found))
  end
  local _, settles, again = unpack(found)
  grace, before = math.max(grace, math.min(settles, 1)), math.max(before, again or 0)
end
return {token, grace, before}
