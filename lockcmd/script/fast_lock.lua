--[[ LOCK's fast path, in front of read.lua: a lock whose key is missing, in no grace period, for
which nobody waits. It does what lock.lua does in half the time. Anything less simple is left to
lock.lua, with nothing written. The record (see read.lua) is taken apart by position, and numbers are
put together as text, because patterns and formats of large numbers are what takes a script's time.

KEYS[1]  the lock
KEYS[2]  its record
ARGV[1]  see read.lua; the last word but the guard, which is 0, is "ends" of take.lua
ARGV[3]  timeout, ms
ARGV[4]  timeout and retention together, ms
ARGV[5]  the record from `session` on, or "" to leave out the fast path

Returns the token.
]]
do
  local timeout, lives, holder = ARGV[3], ARGV[4], ARGV[5]
  if holder ~= '' and not value then
    local line = record and string.sub(record, 48, 50) == ' 0 '
      and string.sub(record, 66, 71) == ' held ' and string.find(record, '\n', 72, true)
    if line and string.sub(record, line - 2, line - 1) == ' -'
      or record and string.sub(record, 20) == ' 0 0 0 0 0 released - 0 - -\n'
      or not record and redis.call('EXISTS', KEYS[2]) == 0 then
      local micros = string.format('%06d', clock[2])
      local ms = string.sub(micros, 1, 3)
      local now, token, ends = clock[1] .. ms, clock[1] .. micros, string.sub(ARGV[1], -15, -3)
      -- Both tokens have 16 digits, and both times 13, so that they compare as text.
      if #token == 16 and now < ends and (not record or token > string.sub(record, 4, 19)) then
        local over = ms + timeout
        local text = string.format('%d%03d', clock[1] + math.floor(over / 1000), over % 1000)
        local taken = redis.pcall('SET', KEYS[1], text, 'PX', timeout, 'NX')
        if taken and not taken.err then -- a full server refuses it too where the lock is held
          redis.call('SET', KEYS[2], 'v1 ' .. token .. ' ' .. text .. ' ' .. text .. ' 0 '
            .. now .. ' ' .. holder, 'PX', lives)
          return tonumber(token)
        end
      end
    end
  end
end
