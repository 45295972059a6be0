--[[ Behind requests.lua in the scripts that change the holders of a shared lock. ]]

-- Nobody needs them for an exclusive lock: to make so many functions takes a tenth of a script's
-- time.
local holder_with, holder_of, request_name, find_holder, remove_holder, replace_holder
local count_holders, check_rights, write_shared, share
if sorted or shares then
  -- More holders would make a script that has to look at all of them take too long.
  local MAX_HOLDERS = 10000

  -- The holder with a token, or nil.
  function holder_with(given)
    local at = shared_until(given)
    if not at then return nil end
    local h = read_holder(redis.call('ZRANGEBYSCORE', KEYS[2], '-' .. given, '-' .. given)[1])
    h.expires = at
    return h
  end

  -- The holder that is found by a request or an owner, as the record has it, or nil.
  function holder_of(name)
    local at = redis.call('ZSCORE', KEYS[2], name)
    return at and holder_with(whole(-at))
  end

  function request_name(of, number) return '=' .. of .. '/' .. number end

  -- The first holder, from the highest token on, that matches says is the one, or nil.
  function find_holder(matches)
    for _, line in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], lowest_holder, '(0')) do
      local h = read_holder(line)
      if h.token and matches(h) then
        h.expires = shared_until(h.token)
        if h.expires then return h end
      end
    end
  end

  -- Appends a holder's members, with their scores, to a list.
  local function add_members(list, h)
    local score, last = '-' .. h.token, string.match(h.connections, '^[^,]+')
    local function add(at, member) list[#list + 1], list[#list + 2] = at, member end
    add(score, h.token .. ' ' .. h.acquired .. ' ' .. h.session .. ' ' .. h.connections .. ' '
      .. h.request .. ' ' .. h.client .. '\n' .. h.owner)
    if h.request ~= '0' then add(score, request_name(last, h.request)) end
    if h.owner ~= '' then add(score, '@' .. h.owner) end
    add(whole(h.expires), h.token)
  end

  -- Removes a holder. It writes also on a full server.
  function remove_holder(t)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-' .. t, '-' .. t)
    redis.call('ZREM', KEYS[2], t)
  end

  -- Writes a holder that has changed.
  function replace_holder(h)
    local members = {}
    add_members(members, h)
    remove_holder(h.token)
    redis.call('ZADD', KEYS[2], unpack(members))
  end

  function count_holders()
    return redis.call('ZCOUNT', KEYS[2], '(' .. whole(now - guard), '+inf')
  end

  -- To change the holders takes several writes: half of them would take the lock from the others. A
  -- user who may not make them all must learn that before the first. Before Redis 7 nothing tells.
  function check_rights()
    if not redis.acl_check_cmd then return end
    local needed = {{'ZADD', KEYS[2], 'XX', 0, '-'}, {'ZREM', KEYS[2], '-'},
      {'ZREMRANGEBYSCORE', KEYS[2], 1, 0}, {'ZREVRANGE', KEYS[2], 1, 0}, {'ZCOUNT', KEYS[2], 1, 0},
      {'PEXPIRE', KEYS[2], 1}, {'SET', KEYS[1], '-', 'NX'}}
    for _, call in ipairs(needed) do
      if not redis.acl_check_cmd(unpack(call)) then redis.call(unpack(call)) end -- it is refused
    end
  end

  -- Writes the first line of a shared lock's record, and what the lock's key holds, after its
  -- holders have changed. list is that of waiting proxies.
  function write_shared(last, list, unit, grace_until, retention)
    local at = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
    local text = at == expires and written or whole(unit == 's' and math.ceil(at / 1000) or at)
    local line = 'v1 ' .. last .. ' ' .. whole(at) .. ' ' .. text .. ' ' .. whole(grace_until)
      .. ' 0 0 shared - 0 - ' .. list .. '\n'
    if line ~= record then
      if sorted then redis.call('ZREM', KEYS[2], record) end
      redis.call('ZADD', KEYS[2], '-inf', line)
    end
    if at ~= expires then redis.call('PEXPIRE', KEYS[2], whole(at + guard - now + retention)) end
    if text ~= value then write_lock(text, at + guard - now) end
  end

  -- Whether a request, or its owner, has the lock already. Then it asks again by itself, and is
  -- told which token it has.
  local function has_it(r)
    return r.owner ~= '' and holder_of('@' .. r.owner)
      or holder_of(request_name(r.connection, r.request))
  end

  -- Gives a shared lock to requests, in order, until one does not fit next to that many holders. If
  -- some get it and one is left, the proxy that asks, which waits so, stays listed behind others:
  -- LOCKs at these would overtake that one.
  -- Returns to how many, the token of the first, and whether the next has the lock already; the
  -- others' tokens follow.
  function share(requests, holders, others, proxy, how, unit, grace_until, retention)
    local first = tonumber(next_token())
    local members, owners, given, again = {}, {}, 0, false
    for _, r in ipairs(requests) do
      local limit = tonumber(r.limit)
      if not limit then break end
      again = owners[r.owner] or holders > 0 and has_it(r)
      if again or limit > 0 and holders + given >= limit or holders + given >= MAX_HOLDERS then
        break
      end
      owners[r.owner] = r.owner ~= ''
      add_members(members, {token = whole(first + given), expires = (expiry(r.timeout, unit)),
        acquired = whole(now), session = r.session, connections = r.connection, request = r.request,
        client = r.client, owner = r.owner})
      given = given + 1
    end
    if given == 0 then return 0, first, again end
    for _, t in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], 0, whole(now - guard))) do
      remove_holder(t)
    end
    redis.call('ZADD', KEYS[2], unpack(members))
    local left = requests[given + 1]
    if left then others[#others + 1] = seen_now(proxy, letter_of(left.limit) .. how, now) end
    write_shared(whole(first + given - 1), join(others), unit, grace_until, retention)
    return given, first, again
  end
end

-- Writes the record with another list of waiting proxies. After its end a lock is free.
local function write_waiting(list, unit, retention)
  if held and state == 'shared' then
    check_rights()
    write_shared(token, list, unit, grace, retention)
  elseif held then
    write_record({token = token, expires = expires, value = written, grace = grace,
      acquired = acquired, session = session, state = state, connection = connections,
      request = request, client = client, waiting = list, owner = owner}, retention)
  else
    write_released(token or '0', lapsed and list ~= '-' and expires or 0,
      token and value == written and written or '0', grace_end(), list, retention)
  end
end
