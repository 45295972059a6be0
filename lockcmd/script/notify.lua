--[[ Behind write.lua in the scripts that let others have a lock: how they tell their proxies. ]]

-- The lock in a message: its name would tell others what it is called.
local function hashed(db) return redis.sha1hex(db .. ':' .. KEYS[1]) end

-- Publishes a message to a proxy, on the channel "lockproxy:wake:" and its name; in a cluster tag is
-- a hash tag of the lock's slot, otherwise "-", and the channel is "lockproxy:wake:{tag}:" and the
-- name. Returns whether that proxy listens, or nil if the caller may not publish.
local function publish(tag, name, message)
  if tag ~= '-' then
    local reached = redis.pcall('SPUBLISH', 'lockproxy:wake:{' .. tag .. '}:' .. name, message)
    if type(reached) == 'number' then return reached > 0 end
    if not string.find(reached.err, 'Unknown.* command called from') then return nil end
    -- Before Redis 7: it reaches those who listen at any node, but counts only those at this one.
    return type(redis.pcall('PUBLISH', 'lockproxy:wake:' .. name, message)) == 'number' or nil
  end
  local reached = redis.pcall('PUBLISH', 'lockproxy:wake:' .. name, message)
  if type(reached) ~= 'number' then return nil end
  return reached > 0
end

