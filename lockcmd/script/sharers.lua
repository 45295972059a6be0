--[[ Behind shared.lua in the scripts after which waiters may share a lock that others hold. ]]

-- Lets the waiters at the head of the line share a lock that so many have: those here that are
-- named, or the proxy that has waited longest is told by tell, if there is that. Nobody gets in who
-- came after another proxy's exclusive waiter. wanted, proxy, how and unit are unlock.lua's.
-- Returns the token of the first, 1 if the proxy that asks should poll, and to how many it was
-- given.
local function let_in(holders, wanted, proxy, how, unit, retention, tell)
  local longest = waiting_proxies(nil)[1]
  local elsewhere = longest and longest.proxy ~= proxy
  local behind = elsewhere and not waits_as(longest, SHARES_AT_ALL)
  local polls = wanted == 'self' or wanted == 'free' or wanted == 'gap'
  local after = elsewhere and (wanted == 'fair' or wanted == 'all')
  if requests[1] and requests[1].limit ~= '-' and not after and not behind then
    local given, first, again = share(requests, holders, waiting_proxies(proxy), proxy, how, unit,
      grace_end(), retention)
    if given > 0 then return first, 0, given end
    polls = again
  end
  write_shared(token, waiting, unit, grace, retention)
  if tell and elsewhere and not behind then tell(longest.proxy) end
  return 0, polls and 1 or 0, 0
end
