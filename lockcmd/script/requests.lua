--[[ Behind write.lua in the scripts that give a lock out: who asks for it.

ARGV[2]  requests, in order: each is "timeout session connection request client limit length owner",
         the last so many bytes long. limit is "-" for an exclusive lock, that of a shared one, or 0
         for none. Those behind the first are of waiters that can share the lock with it. One with
         "-" behind these is given nothing, and says that somebody waits behind them
]]
local requests, from = {}, 1
while true do
  local _, last, timeout, session, connection, request, client, limit, length =
    string.find(ARGV[2], '^(%d+) (%d) (%S+) (%d+) (%S+) (%S+) (%d+) ', from)
  if not last then break end
  requests[#requests + 1] = {timeout = tonumber(timeout), session = session,
    connection = connection, request = request, client = client, limit = limit,
    owner = string.sub(ARGV[2], last + 1, last + length)}
  from = last + length + 1
end

-- Whether the first wants to share the lock.
local shares = requests[1] and requests[1].limit ~= '-'

-- Writes the record of a lock that was given to a request.
local function write_given(r, given, at, text, grace_until, list, retention)
  write_record({token = given, expires = at, value = text, grace = grace_until, acquired = now,
    session = r.session, state = 'held', connection = r.connection, request = r.request,
    client = r.client, waiting = list, owner = r.owner}, retention)
end
