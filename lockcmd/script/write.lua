--[[ Behind read.lua in the scripts that write: how they do. ]]

-- Writes a key of a lock, for ttl ms. On a full server a script may write only after it has deleted
-- something, and there too a lock must be renewed and handed over, and can be waited for. A lock
-- that is taken is not written by this, so that a full server refuses it.
local function write(key, text, ttl)
  local done = redis.pcall('SET', key, text, 'PX', whole(ttl))
  if not done.err then return end
  if string.find(done.err, 'OOM', 1, true) then redis.call('DEL', key) end
  redis.call('SET', key, text, 'PX', whole(ttl))
end

-- Writes a record that outlives the lock by retention ms.
local function write_record(r, retention)
  write(KEYS[2],
    'v1 ' .. r.token .. ' ' .. whole(r.expires) .. ' ' .. r.value .. ' ' .. whole(r.grace)
      .. ' ' .. whole(r.acquired) .. ' ' .. r.session .. ' ' .. r.state .. ' ' .. r.connection
      .. ' ' .. r.request .. ' ' .. r.client .. ' ' .. r.waiting .. '\n' .. r.owner,
    math.max(r.expires + guard - now, 0) + retention)
end

-- Writes the record of a lock that nobody has. over is when it ran out, if that was just now and
-- others wait, otherwise 0; text is what it has written at its key, if that is still there, or '0'.
local function write_released(last, over, text, grace_until, list, retention)
  write_record({token = last, expires = over, value = text, grace = grace_until, acquired = 0,
    session = '0', state = 'released', connection = '-', request = '0', client = '-',
    waiting = list, owner = ''}, retention)
end

-- Writes the key of a lock that exists.
local function write_lock(text, ttl) write(KEYS[1], text, ttl) end

-- When a lock taken now for timeout ms expires, and what is written at its key, in the unit "ms" or
-- "s". Seconds are rounded up: the lock then lasts until that second.
local function expiry(timeout, unit)
  local at = now + timeout
  if unit ~= 's' then return at, whole(at) end
  local seconds = math.ceil(at / 1000)
  return seconds * 1000, whole(seconds)
end

-- The connections that were given the lock, except one; found says whether that was among them.
local function without(name, given)
  local others, found = {}, false
  for other in string.gmatch(given, '[^,]+') do
    if other == name or other == name .. '~' then
      found = true
    else
      others[#others + 1] = other
    end
  end
  return others, found
end

-- The connections that are left when the first is taken out, and how the new first one asked.
local function promoted(others)
  local name = string.match(others[1], '^(.*)~$')
  local of_session = (name or others[1] == '-') and '0' or '1'
  others[1] = name or others[1]
  return table.concat(others, ','), of_session
end

-- The end of the grace period, 0 if there is none now. It goes on when the lock has another holder.
local function grace_end()
  return token and now < grace and grace or 0
end

-- What LOCK answers of the grace period: 2 if there is one now, otherwise 0.
local function in_grace() return grace_end() > 0 and 2 or 0 end

-- More than each token given out for this lock, and than each that a server whose clock is not
-- behind can have given out.
local function next_token()
  local t = clock[1] * 1000000 + clock[2]
  if token then t = math.max(t, tonumber(token) + 1) end
  return whole(t)
end
