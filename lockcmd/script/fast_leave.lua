--[[ The fast path of UNLOCK for a holder of a shared lock that leaves others, behind
fast_unlock.lua: in no grace period, for which nobody waits. It does what unlock.lua does in a third
of the time. See fast_share.lua for how.

KEYS[1]  the lock
KEYS[2]  its record
ARGV[1]  begins as that of unlock.lua: with its `wanted`, `by`, `proof`, `retention` and `proxy`
ARGV[3]  how long the record outlives the lock, ms
ARGV[4]  the token, or "" to leave out the fast path
ARGV[5]  "none", if nobody waits here

Returns as unlock.lua does.
]]
do
  local words, retention, token, wanted = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
  if value and not record and token ~= '' and wanted == 'none' then
    local line = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
    local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
    if line and #token == 16 and string.sub(line, 48) == ' 0 0 0 shared - 0 - -\n'
      and string.sub(line, 35, 47) == value and string.sub(line, 21, 33) == value then
      local at = redis.call('ZSCORE', KEYS[2], token)
      local latest = at
      if at == value then -- the latest of the others
        latest = redis.call('ZREVRANGE', KEYS[2], 0, 1, 'WITHSCORES')[4]
      elseif at then
        latest = value
      end
      local left = at and #at == 13 and at > now and #latest == 13 and latest > now
        and redis.pcall('PTTL', KEYS[1])
      -- Without a TTL it is a foreign twin: see read.lua.
      if left and (type(left) ~= 'number' or left > 0) then
        local score = '-' .. token
        local holder = redis.call('ZRANGEBYSCORE', KEYS[2], score, score, 'LIMIT', 0, 1)[1]
        local asks = string.match(words, '^none connection (%S+)') or ''
        local has = string.sub(holder, 34, 34 + #asks)
        local by = string.match(words, '^none token %d+ %d+ (%S+)')
        -- Another proxy must be told of its session that ends. Each connection of an owner can have
        -- one.
        local elsewhere = by and (string.find(holder, '^%S*,', 34)
          or string.sub(holder, 32, 32) == '1' and string.sub(holder, 34, 34 + #by) ~= by .. '-')
        local may = redis.acl_check_cmd -- as in fast_share.lua
        local allowed = not may or may('ZREM', KEYS[2], '-') and may('ZADD', KEYS[2], 0, '-')
          and may('PEXPIRE', KEYS[2], 1) and may('SET', KEYS[1], '-')
        if not elsewhere and allowed
          and (asks == '' or has == asks .. ' ' or has == asks .. ',') then
          redis.call('ZREMRANGEBYSCORE', KEYS[2], score, score)
          redis.call('ZREM', KEYS[2], token)
          if latest ~= value then
            redis.call('ZREM', KEYS[2], line)
            redis.call('ZADD', KEYS[2], '-inf', string.sub(line, 1, 20) .. latest .. ' ' .. latest
              .. ' 0 0 0 shared - 0 - -\n')
            redis.call('PEXPIRE', KEYS[2], latest - now + retention)
            redis.call('SET', KEYS[1], latest, 'PX', latest - now)
          end
          return {2, 0, 0, tonumber(token), 0, (string.match(holder, ' (%S+)\n'))}
        end
      end
    end
  end
end
