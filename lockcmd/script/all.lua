--[[ LOCKALL: takes several locks or none, by lock.lua, a function in `scripts`.

KEYS  the two keys of each lock
ARGV[1]  as for lock.lua, with the words MODE and TOKEN in places of `mode` and `chosen`
ARGV[2]  the request, as for lock.lua
ARGV[3]  "first", for a LOCKALL that waits and is the first waiter of each lock at this proxy;
         "check", where others wait for one of them here, to take none that is free; or "try"
ARGV[4]  1 for each lock whose first waiter here it is, otherwise 0, as in "0110": there it is
         recorded as waiting if it gets nothing

Returns {the token of all, 0 or 1 if a grace period runs for one of them, 0; 1 if they were its
owner's already; 2 if this connection had been given them before}. If one is held {0, ms until
another may take it, the time now, ms}, and then which locks foreign clients hold, from 1 on.
WRONGTYPE if a key holds something else; then nothing is written.
]]
local words, request, mode, first_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local clock = redis.call('TIME')
local values = redis.call('MGET', unpack(KEYS))
local function run(i, step, chosen)
  local args = string.gsub(string.gsub(words, ' MODE ', ' ' .. step .. ' ', 1), ' TOKEN ',
    ' ' .. chosen .. ' ', 1)
  return scripts.lock({KEYS[2 * i - 1], KEYS[2 * i]}, {args, request, '', '', ''},
    values[2 * i - 1], values[2 * i], clock)
end

local count = #KEYS / 2
local token, own, foreign, wait, held = 0, 0, {}, 0, false
for i = 1, count do
  local found = run(i, 'probe', mode == 'try' and '1' or '0')
  if found.err then return found end
  if found[1] == 0 then
    held, wait = true, math.max(wait, found[3])
    if found[2] == 1 then foreign[#foreign + 1] = i end
  elseif found[3] then
    held = held or own > 0 and token ~= found[1]
    own = own + 1
  end
  token = math.max(token, found[1])
end
if held or own > 0 and own < count or mode == 'check' and own == 0 then
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  for i = 1, count do
    local listed = string.sub(first_at, i, i) == '1' and run(i, 'list', '0')
    if listed and listed.err then return listed end
  end
  return {0, wait, now, unpack(foreign)}
end

local grace, before = 0, 0
for i = 1, count do
  local taken, found = pcall(run, i, own > 0 and 'first' or 'take', string.format('%.0f', token))
  if not taken or found.err then -- the user may not write it: those taken before are free again
    local retention = string.match(words, '^%S+ (%S+)')
    for j = 1, own > 0 and 0 or i - 1 do
      local record = string.gsub(redis.call('MGET', KEYS[2 * j])[1],
        '^(v1 %d+) %d+ %d+ (%d+) [^\n]* (%S+)\n.*$', '%1 0 0 %2 0 0 released - 0 - %3\n')
      redis.call('SET', KEYS[2 * j], record, 'PX', retention)
      if type(redis.pcall('DEL', KEYS[2 * j - 1])) == 'table' then -- the user may not
        redis.call('SET', KEYS[2 * j - 1], '0', 'PX', 1)
      end
    end
    return redis.error_reply(type(found) == 'table' and found.err or tostring(found))
  end
  grace, before = math.max(grace, math.min(found[2], 1)), math.max(before, found[3] or 0)
end
return {token, grace, before}
