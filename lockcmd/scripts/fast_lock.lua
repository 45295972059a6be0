--[[ LOCK's short way, in front of all else: a lock that was released, or never taken, for which nobody waits. It does what lock.lua
does, for half the time; whatever is not so simple is left to that, with nothing written. What the companion holds is said in
read.lua. It is taken apart by position, and numbers are put together as text, since patterns and formats of large numbers are
what a script's time goes to.

ARGV[3]  timeout, ms
ARGV[4]  timeout and retention together, ms
ARGV[5]  the companion from `session` on, or "" to take the long way

Returns the token.
]]
if ARGV[5] ~= '' then
  local companion = redis.call('MGET', KEYS[2])[1]
  if companion and string.sub(companion, 20) == ' 0 0 0 0 0 released - 0 - -\n'
    or not companion and redis.call('EXISTS', KEYS[2]) == 0 then
    local clock = redis.call('TIME')
    local micros = string.format('%06d', tonumber(clock[2]))
    local token = clock[1] .. micros
    if #token == 16 and (not companion or token > string.sub(companion, 4, 19)) then -- as text: both have 16 digits
      local ms = string.sub(micros, 1, 3)
      local over = ms + ARGV[3]
      local text = string.format('%d%03d', clock[1] + math.floor(over / 1000), over % 1000)
      local taken = redis.pcall('SET', KEYS[1], text, 'PX', ARGV[3], 'NX')
      if taken and not taken.err then -- a full server refuses it too where the lock is held
        redis.call('SET', KEYS[2], 'v1 ' .. token .. ' ' .. text .. ' ' .. text .. ' 0 ' .. clock[1] .. ms .. ' ' .. ARGV[5], 'PX', ARGV[4])
        return tonumber(token)
      end
    end
  end
end

