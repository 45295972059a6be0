--[[ UNLOCK's fast path, in front of read.lua: the caller's own lock, in no grace period, that does
not move to another proxy. It does what unlock.lua does in half the time. Anything less simple is
left to unlock.lua, with nothing written. See fast_lock.lua for how.

KEYS[1]  the lock
KEYS[2]  its record
ARGV[3]  how long the record outlives the release, ms
ARGV[4]  the token or the connection that proves it, or "" to leave out the fast path
ARGV[5]  "none", or the first waiter here: its proxy, or "-" if others that wait go first; its
         timeout in ms, timeout and retention together, and its record from `session` on

Returns 1, or the token given to the first waiter.
]]
do
  local retention, proof, waiter = ARGV[3], ARGV[4], ARGV[5]
  if proof ~= '' and value and record and string.sub(record, 35, 50) == value .. ' 0 '
    and string.sub(record, 66, 71) == ' held '
    and (string.sub(record, 72, 72 + #proof) == proof .. ' '
      or string.sub(record, 4, 19) == proof) then
    local line = string.find(record, '\n', 72, true)
    local micros = string.format('%06d', clock[2])
    local ms = string.sub(micros, 1, 3)
    local proxy, timeout, ttl, holder
    if waiter ~= 'none' then
      proxy, timeout, ttl, holder = string.match(waiter, '^(%S+) (%d+) (%d+) (.*)$')
    end

    -- The record's list of other proxies, if the hand-over does not change it, and does not depend
    -- on it: each was seen lately, and its first waiter wants the lock for itself.
    local waiting = line and string.sub(record, line - 2, line - 1) == ' -' and '-'
    if line and not waiting and holder and proxy ~= '-' then
      waiting = string.match(record, ' (%S+)\n', 72)
      for entry in string.gmatch(waiting, '[^,]+') do
        local name, seen = string.match(entry, '^([^:]+):(%d+):p?%d+:%d+$')
        if not name or name == proxy or math.abs((clock[1] .. ms) - seen) >= 1000 then
          waiting = nil
        end
      end
    end

    local left = waiting and clock[1] .. ms < value and redis.pcall('PTTL', KEYS[1])
    -- Without a TTL it is a foreign twin: see read.lua.
    if left and (type(left) ~= 'number' or left > 0) then
      if not holder then
        redis.call('DEL', KEYS[1])
        if value - string.sub(record, 51, 63) - retention > 0 then
          redis.call('SET', KEYS[2], string.sub(record, 1, 19) .. ' 0 0 0 0 0 released - 0 - -\n',
            'PX', retention)
        end
        return 1
      end
      local token = clock[1] .. micros
      if #token == 16 and token > string.sub(record, 4, 19) then
        local over = ms + timeout
        local text = string.format('%d%03d', clock[1] + math.floor(over / 1000), over % 1000)
        -- A full server may refuse it; unlock.lua knows what to do then.
        if not redis.pcall('SET', KEYS[1], text, 'PX', timeout).err then
          if waiting ~= '-' then
            local at = string.find(holder, '-\n', 1, true)
            holder = string.sub(holder, 1, at - 1) .. waiting .. string.sub(holder, at + 1)
          end
          redis.call('SET', KEYS[2], 'v1 ' .. token .. ' ' .. text .. ' ' .. text .. ' 0 '
            .. clock[1] .. ms .. ' ' .. holder, 'PX', ttl)
          return tonumber(token)
        end
      end
    end
  end
end
