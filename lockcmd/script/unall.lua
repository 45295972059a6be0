--[[ UNLOCKALL: releases several locks of one token, by unlock.lua, a function in `scripts`.

KEYS  the two keys of each lock
ARGV[1]  as for unlock.lua, without the first word
ARGV[2]  that word for each lock, with blanks between. It names no waiter

Returns a list of what unlock.lua returns. An error is its own lock's only.
]]
local words, wanted = ARGV[1], ARGV[2]

local clock = redis.call('TIME')
local values = redis.call('MGET', unpack(KEYS))
local results, i = {}, 0
for kind in string.gmatch(wanted, '%S+') do
  i = i + 1
  local done, result = pcall(scripts.unlock, {KEYS[2 * i - 1], KEYS[2 * i]},
    {kind .. ' ' .. words, '', '', '', ''}, values[2 * i - 1], values[2 * i], clock)
  if not done then
    result = {err = type(result) == 'table' and result.err or 'ERR ' .. tostring(result)}
  end
  results[i] = result
end
return results
