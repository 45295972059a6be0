--[[ UNLOCK's short way, in front of all else: the caller's own lock, not settling, with no other proxy waiting. It does what unlock.lua
does, for half the time; whatever is not so simple is left to that, with nothing written. See fast_lock.lua for how.

ARGV[3]  how long the companion outlives the release, ms
ARGV[4]  the token or the connection that proves it, or "" to take the long way
ARGV[5]  "none", or the first waiter here: its timeout in ms, timeout and retention together, and its companion from `session` on

Returns 1, or the token given to the first waiter.
]]
if ARGV[4] ~= '' then
  local stored = redis.call('MGET', KEYS[1], KEYS[2])
  local value, companion = stored[1], stored[2]
  if value and companion and string.sub(companion, 35, 50) == value .. ' 0 ' and string.sub(companion, 66, 71) == ' held '
    and (string.sub(companion, 72, 72 + #ARGV[4]) == ARGV[4] .. ' ' or string.sub(companion, 4, 19) == ARGV[4]) then
    local line = string.find(companion, '\n', 72, true)
    local clock = redis.call('TIME')
    local micros = string.format('%06d', tonumber(clock[2]))
    local ms = string.sub(micros, 1, 3)
    local ttl = redis.pcall('PTTL', KEYS[1]) -- without one it is another's timestamp, the same to the letter: see common.lua
    if line and string.sub(companion, line - 2, line - 1) == ' -' and clock[1] .. ms < value and (type(ttl) ~= 'number' or ttl > 0) then
      if ARGV[5] == 'none' then
        redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[2], string.sub(companion, 1, 19) .. ' 0 0 0 0 0 released - 0 - -\n', 'PX', ARGV[3])
        return 1
      end
      local timeout, ttl, holder = string.match(ARGV[5], '^(%d+) (%d+) (.*)$')
      local token = clock[1] .. micros
      if #token == 16 and token > string.sub(companion, 4, 19) then
        local over = ms + timeout
        local text = string.format('%d%03d', clock[1] + math.floor(over / 1000), over % 1000)
        if not redis.pcall('SET', KEYS[1], text, 'PX', timeout).err then -- else the server is full: the long way knows how
          redis.call('SET', KEYS[2], 'v1 ' .. token .. ' ' .. text .. ' ' .. text .. ' 0 ' .. clock[1] .. ms .. ' ' .. holder, 'PX', ttl)
          return tonumber(token)
        end
      end
    end
  end
end

