--[[ Which proxies have waiters, by the record. It comes after write.lua. ]]

-- The letters of `how`: see read.lua.
local FOREIGN, POLLS, SHARES, LIMITED, ALL, TRACKS = 'f', 'p', 's', 'l', 'a', 't'
local SHARES_AT_ALL = '[sl]'

-- How a waiter waits, by the limit that it asks for.
local function letter_of(limit)
  return limit == '-' and '' or limit == '0' and SHARES or LIMITED
end

-- Whether a proxy of the list waits as a letter says, or one of a set.
local function waits_as(entry, letter) return string.find(entry.how, letter) ~= nil end

-- How much longer than a near proxy one may take, ms, by `how`.
local function way(how) return 100 * string.match(how, '%d+') end

-- How long after its end a lock is left to the proxy that has waited longest, ms: its first waiter
-- knows when the lock ends, and asks then.
local HEAD_START = 100

-- One seen later than that, ms from now, was seen before the clock was set back: if it still waits,
-- it is listed again by its next poll.
local FUTURE = 5000

-- How long a proxy is listed after it has been seen, ms, by `how`. One that tracks the lock asks
-- every five seconds. If it has ended, it does not listen either, and gets no turn.
local function lasts(how)
  return (string.find(how, TRACKS, 1, true) and 7000 or 1000) + way(how)
end

-- The waiting proxies that have been seen lately, except one.
local function waiting_proxies(except)
  local list = {}
  for text, proxy, seen, how, since in
    string.gmatch(waiting or '-', '(([^,:]+):(%d+):(%a*%d+):(%d+))') do
    if proxy ~= except and now - seen < lasts(how) and seen - now < FUTURE then
      list[#list + 1] = {text = text, proxy = proxy, seen = tonumber(seen), how = how,
        since = tonumber(since)}
    end
  end
  return list
end

-- An entry of a proxy that has been seen now.
local function seen_now(proxy, how, since)
  return {text = proxy .. ':' .. whole(now) .. ':' .. how .. ':' .. whole(since), proxy = proxy,
    seen = now, how = how, since = since}
end

-- Such a list as the record holds it.
local function join(list)
  if #list == 0 then return '-' end
  local texts = {}
  for i, entry in ipairs(list) do texts[i] = entry.text end
  return table.concat(texts, ',')
end

-- Whether the lock ran out just now: its waiters have not all had the time to ask.
local lapsed = token and not held and now >= free_at
if lapsed then
  local head_start = HEAD_START
  for _, entry in ipairs(waiting_proxies(nil)) do
    head_start = math.max(head_start, HEAD_START + way(entry.how))
  end
  lapsed = now < free_at + head_start
end
