--[[ UNLOCK's short way, put behind read.lua in front of all else: the caller's own lock, not settling, with no other proxy waiting.
It does what unlock.lua does, for half the time; whatever is not so simple is left to that, with nothing written.

ARGV[3]  how long the companion outlives the release, ms
ARGV[4]  the token or the connection that proves it, or "" to take the long way
ARGV[5]  "none", or the first waiter here: its timeout in ms, timeout and retention together, and its companion from `session` on
]]
if ARGV[4] ~= '' and value and companion then
  local own, at, text, holder = string.match(companion, '^v1 (%d+) (%d+) (%d+) 0 %d+ %d held (%S+) %d+ %S+ %-\n')
  if own and value == text and now < tonumber(at) and (ARGV[4] == own or ARGV[4] == holder) then
    if ARGV[5] == 'none' then
      redis.call('DEL', KEYS[1])
      redis.call('SET', KEYS[2], 'v1 ' .. own .. ' 0 0 0 0 0 released - 0 - -\n', 'PX', ARGV[3])
      return {1, 0, 0}
    end
    local timeout, ttl, next_holder = string.match(ARGV[5], '^(%d+) (%d+) (.*)$')
    local given = math.max(clock[1] * 1000000 + clock[2], tonumber(own) + 1)
    text = string.format('%.0f', now + timeout)
    if not redis.pcall('SET', KEYS[1], text, 'PX', timeout).err then -- else the server is full: the long way knows how
      redis.call('SET', KEYS[2], string.format('v1 %.0f %s %s 0 %.0f ', given, text, text, now) .. next_holder, 'PX', ttl)
      return {1, given, 0}
    end
  end
end

