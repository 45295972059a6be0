--[[ LOCK's short way, put behind read.lua in front of all else: a lock that was released, or never taken, for which nobody waits.
It does what lock.lua does, for half the time; whatever is not so simple is left to that, with nothing written.

ARGV[3]  timeout, ms
ARGV[4]  timeout and retention together, ms
ARGV[5]  the companion from `session` on, or "" to take the long way
]]
if ARGV[5] ~= '' and not value then
  local given = clock[1] * 1000000 + clock[2]
  local last = companion and string.match(companion, '^v1 (%d+) 0 0 0 0 0 released %- 0 %- %-\n$')
  if last and given > tonumber(last) or not companion and redis.call('EXISTS', KEYS[2]) == 0 then
    local text = string.format('%.0f', now + ARGV[3])
    if redis.call('SET', KEYS[1], text, 'PX', ARGV[3], 'NX') then
      redis.call('SET', KEYS[2], string.format('v1 %.0f %s %s 0 %.0f ', given, text, text, now) .. ARGV[5], 'PX', ARGV[4])
      return {given, 0}
    end
  end
end

