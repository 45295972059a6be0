--[[ Put behind common.lua in front of the scripts that write. ]]

-- Writes a companion that outlives the lock by retention ms.
local function record(r, retention)
  redis.call('SET', KEYS[2],
    'v1 ' .. r.token .. ' ' .. whole(r.expires) .. ' ' .. r.value .. ' ' .. whole(r.settles) .. ' ' .. whole(r.acquired) .. ' '
      .. r.session .. ' ' .. r.state .. ' ' .. r.connection .. ' ' .. r.request .. ' ' .. r.client .. ' ' .. r.waiting .. '\n' .. r.owner,
    'PX', whole(math.max(r.expires + guard - now, 0) + retention))
end

-- Writes the key of a lock that there is already, for ttl ms. On a full server a script may write only once it has deleted
-- something, and there too a lock must be renewed and handed on.
local function rewrite(text, ttl)
  local done = redis.pcall('SET', KEYS[1], text, 'PX', whole(ttl))
  if not done.err then return end
  if string.find(done.err, 'OOM', 1, true) then redis.call('DEL', KEYS[1]) end
  redis.call('SET', KEYS[1], text, 'PX', whole(ttl))
end

-- When a lock taken now for timeout ms expires, and what is written at its key, in the unit "ms" or "s" (rounded up: the lock
-- then lasts until that second).
local function expiry(timeout, unit)
  local at = now + timeout
  if unit ~= 's' then return at, whole(at) end
  local seconds = math.ceil(at / 1000)
  return seconds * 1000, whole(seconds)
end

-- The connections that were given the lock, but for one; found says whether that was among them.
local function without(name)
  local others, found = {}, false
  for other in string.gmatch(connections, '[^,]+') do
    if other == name then found = true else others[#others + 1] = other end
  end
  return others, found
end

-- Until when a lock that was taken over settles, whoever has it since; 0 if none does.
local function settling()
  return token and now < settles and settles or 0
end

-- More than any token given out for this lock, and than any that a server whose clock is not behind can have given out.
local function next_token()
  local t = clock[1] * 1000000 + clock[2]
  if token then t = math.max(t, tonumber(token) + 1) end
  return whole(t)
end

-- The waiting proxies seen within the last second, but for one, as a list of {id, seen, how, since}.
local function rivals(but)
  local list = {}
  for id, seen, how, since in string.gmatch(waiting or '-', '([^,:]+):(%d+):(%d):?(%d*)') do
    if id ~= but and now - tonumber(seen) < 1000 then list[#list + 1] = {id, seen, how, since == '' and seen or since} end
  end
  return list
end

local function join(list)
  if #list == 0 then return '-' end
  local parts = {}
  for i, entry in ipairs(list) do parts[i] = table.concat(entry, ':') end
  return table.concat(parts, ',')
end
