--[[ Behind lock.lua, unlock.lua, relock.lua and info.lua, each a function in `scripts`: runs calls
of them, one after the other, as if each had come alone. It reads all keys at once, and the clock:
that takes a good part of a script's time.

KEYS  the two keys of each call. No two calls have a key in common
ARGV  the script's name and its five arguments, for each call

Returns a list of what they return. An error is its own call's only. The status LATER stands for a
call that has not run, because those before it took longer than a millisecond: scripts of other
clients must not wait for long. As of Redis 7.2 the clock stands still within a script: there only
the number of calls bounds it, which take about as long.
]]
local clock = redis.call('TIME')
local function micros(time) return time[1] * 1000000 + time[2] end

local values = redis.call('MGET', unpack(KEYS))
local results, late = {}, false
for i = 1, #KEYS / 2 do
  if i % 8 == 0 and not late then late = micros(redis.call('TIME')) - micros(clock) > 1000 end
  if late then
    results[i] = {ok = 'LATER'}
  else
    local k, a = 2 * i - 1, 6 * i - 5
    local done, result = pcall(scripts[ARGV[a]], {KEYS[k], KEYS[k + 1]},
      {ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]},
      values[k], values[k + 1], clock)
    if not done and type(result) ~= 'table' then
      local code = string.find(result, '^%u+ ') and '' or 'ERR '
      result = {err = code .. result}
    end
    results[i] = result
  end
end
return results
