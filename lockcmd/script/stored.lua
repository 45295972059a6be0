--[[ In front of each script here that runs alone: what the upstream has of a lock now. See read.lua.
In a batch, batch.lua hands it over. ]]
local stored = redis.call('MGET', KEYS[1], KEYS[2])
local value, record = stored[1], stored[2]
local clock = redis.call('TIME')

