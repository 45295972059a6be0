--[[ UNLOCKALL: releases several locks of one token, by unlock.lua, a function in `scripts`.

KEYS  the two keys of each lock
ARGV[1]  as for unlock.lua, with the word KIND in place of A[5]
ARGV[2]  A[5] of unlock.lua for each lock, with blanks between. It names no waiter

Returns a list of what unlock.lua returns. An error is its own lock's only.
]]
local clock = redis.call('TIME')
local values = redis.call('MGET', unpack(KEYS))
local results, i = {}, 0
for kind in string.gmatch(ARGV[2], '%S+') do
  i = i + 1
  local args = string.gsub(ARGV[1], ' KIND ', ' ' .. kind .. ' ', 1)
  local done, result = pcall(scripts.unlock, {KEYS[2 * i - 1], KEYS[2 * i]}, {args, '', '', '', ''},
    values[2 * i - 1], values[2 * i], clock)
  if not done then
    result = {err = type(result) == 'table' and result.err or 'ERR ' .. tostring(result)}
  end
  results[i] = result
end
return results
