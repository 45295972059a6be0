--[[ The fast path of LOCK for one more holder of a shared lock, behind fast_lock.lua: in no grace
period, for which no proxy waits, none of whose holders is over. It does what lock.lua does in a
third of the time. See fast_lock.lua for how, and read.lua for the record.

KEYS[1]  the lock
KEYS[2]  its record
ARGV[1]  as for fast_lock.lua
ARGV[4]  "timeout limit retention =connection/request holder", the last as in the record, from
         `session` on; the times in ms, limit 0 for none. Or "" to leave out the fast path
ARGV[5]  "", or it is for fast_lock.lua

Returns as lock.lua does.
]]
do
  local sharer, exclusive = ARGV[4], ARGV[5]
  if value and not record and sharer ~= '' and exclusive == '' then
    local line = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
    local micros = string.format('%06d', clock[2])
    local ms = string.sub(micros, 1, 3)
    local now, token, ends = clock[1] .. ms, clock[1] .. micros, string.sub(ARGV[1], -15, -3)
    if line and string.sub(line, 48) == ' 0 0 0 shared - 0 - -\n'
      and string.sub(line, 35, 47) == value and string.sub(line, 21, 33) == value and now < value
      and now < ends and #token == 16 and token > string.sub(line, 4, 19) then
      local timeout, limit, retention, request, holder, owner =
        string.match(sharer, '^(%d+) (%d+) (%d+) (%S+) ([^\n]*\n(.*))$')
      local left = redis.pcall('PTTL', KEYS[1])
      -- Without a TTL it is a foreign twin: see read.lua.
      local own = type(left) ~= 'number' or left > 0
      -- A user who may not make all the writes below is left to check_rights.
      local may = redis.acl_check_cmd
      own = own and (not may or may('ZREM', KEYS[2], '-') and may('PEXPIRE', KEYS[2], 1)
        and may('SET', KEYS[1], '-'))
      local most = limit == '0' and 10000 or math.min(limit, 10000) -- MAX_HOLDERS of shared.lua
      if own and redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf') < most
        and redis.call('ZCOUNT', KEYS[2], 0, now) == 0
        and not redis.call('ZSCORE', KEYS[2], request)
        and (owner == '' or not redis.call('ZSCORE', KEYS[2], '@' .. owner)) then
        local over = ms + timeout
        local at = string.format('%d%03d', clock[1] + math.floor(over / 1000), over % 1000)
        local score = '-' .. token
        holder = token .. ' ' .. now .. ' ' .. holder
        if owner == '' then
          redis.call('ZADD', KEYS[2], score, holder, score, request, at, token)
        else
          redis.call('ZADD', KEYS[2], score, holder, score, request, score, '@' .. owner, at, token)
        end
        local latest = at > value and at or value
        redis.call('ZREM', KEYS[2], line)
        redis.call('ZADD', KEYS[2], '-inf', 'v1 ' .. token .. ' ' .. latest .. ' ' .. latest
          .. ' 0 0 0 shared - 0 - -\n')
        if latest ~= value then
          redis.call('PEXPIRE', KEYS[2], latest - now + retention)
          redis.call('SET', KEYS[1], latest, 'PX', latest - now)
        end
        return {tonumber(token), 0, 0, 1}
      end
    end
  end
end
