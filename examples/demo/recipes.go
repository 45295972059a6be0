package main

import (
	"strconv"
	"time"
)

const releaseNX = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

// tellNX: Redis's own clock, and a release that compares. A holder that is paused past its timeout
// writes all the same: nothing tells it, and nothing refuses the write.
func tellNX(s *scene) {
	if s.do("A", "SET", "a", "NX", "PX", 200) == "OK" {
		s.holds("A")
	}
	if s.do("B", "SET", "b", "NX", "PX", 60000) == "(nil)" {
		s.say("B", "sleeps, and tries again: the luckiest comes first, not the first")
	}
	time.Sleep(300 * time.Millisecond) // Redis's clock counts
	s.later(1, "A's process was paused: by garbage collection, a full disk, the hypervisor")
	if s.do("B", "SET", "b", "NX", "PX", 60000) == "OK" {
		s.holds("B")
	}
	s.say("A", "goes on, and overwrites what B writes")
	if s.eval("A", "compare and delete", releaseNX, "a") == "0" {
		s.say("A", "learns of it when its work is done")
	}
}

// expired is how the recipes decide: by the client's clock, from what is in the key.
func expired(value string, now int64) bool {
	until, err := strconv.ParseInt(value, 10, 64)
	return err == nil && until <= now
}

// tellL1: two clients find an expired lock. The first GETSET wins; the second loses, and has
// written all the same.
func tellL1(s *scene) {
	s.do("-", "SET", s.now-3600)
	s.say("-", "an hour ago its holder has crashed")
	a, b := s.do("A", "GET"), s.do("B", "GET")
	if expired(a, s.now) && expired(s.do("A", "GETSET", s.now+60+1), s.now) {
		s.holds("A")
	}
	if expired(b, s.now) && !expired(s.do("B", "GETSET", s.now+1+1), s.now) {
		s.say("B", "has lost, and its time, 2 s from now, is in the key")
	}
	s.later(3, "A works, and has 57 s left")
	if expired(s.do("C", "GET"), s.now) && expired(s.do("C", "GETSET", s.now+60+1), s.now) {
		s.holds("C")
	}
}

// tellL2: the holder looks at its clock, is paused, and deletes what is another's by then.
func tellL2(s *scene) {
	const timeout = 3
	mine := s.now + timeout + 1
	if s.do("A", "SETNX", mine) == "1" {
		s.holds("A")
	}
	s.later(3, "A has done its work")
	if s.now < mine {
		s.say("A", "sees that its lock has not expired, and is about to DEL it")
	}
	s.later(2, "A's process was paused")
	if s.do("B", "SETNX", s.now+timeout+1) == "0" && expired(s.do("B", "GET"), s.now) &&
		expired(s.do("B", "GETSET", s.now+timeout+1), s.now) {
		s.holds("B")
	}
	s.do("A", "DEL")
	s.ends("A")
	if s.do("C", "SETNX", s.now+timeout+1) == "1" {
		s.holds("C")
	}
}

// tellL3: the timeout is a guess at how long the work takes.
func tellL3(s *scene) {
	ms := func() int64 { return s.now * 1000 }
	if s.do("A", "SETNX", ms()+3000) == "1" {
		s.holds("A")
	}
	s.later(5, "A's work takes longer than the 3 s")
	if s.do("B", "SETNX", ms()+3000) == "0" {
		old := s.do("B", "GET")
		if expired(old, ms()) && s.do("B", "GETSET", ms()+3000) == old {
			s.holds("B")
		}
	}
	s.say("A", "works on: nothing tells it")
}

const (
	acquireL4 = `
local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('SETNX', KEYS[1], now + timeout + 1) == 1 then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
local value = redis.call('GET', KEYS[1])
if not value then return 1 end
if now < tonumber(value) then return 2 end
if redis.call('GETSET', KEYS[1], now + 4 + timeout + 1) == value then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
return 3`
	releaseL4 = `
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) > tonumber(value) then return redis.call('DEL', KEYS[1]) end
return 0`
	releaseL4Fixed = `
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) < tonumber(value) then return redis.call('DEL', KEYS[1]) end
return 0`
)

// tellL4: as published its release frees only what has expired. With the comparison turned, it
// frees whatever has not.
func tellL4(s *scene) {
	s.eval("A", "acquire", acquireL4, s.now, 3)
	s.later(1, "A has done its work")
	if s.eval("A", "release", releaseL4, s.now) == "0" {
		s.say("A", "has freed nothing: the comparison is the wrong way round")
	}
	if s.eval("B", "acquire", acquireL4, s.now, 3) == "2" {
		s.say("B", "is refused, though nobody works")
	}
	s.later(4, "expired at last; and the release is put right")
	if s.eval("B", "acquire", acquireL4, s.now, 3) == "0" {
		s.holds("B")
	}
	s.later(9, "B's work takes longer than its lock")
	if s.eval("C", "acquire", acquireL4, s.now, 3) == "0" {
		s.holds("C")
	}
	s.eval("B", "release, put right,", releaseL4Fixed, s.now)
	s.ends("B")
	s.say("B", "has freed C's lock")
	if s.eval("D", "acquire", acquireL4, s.now, 3) == "0" {
		s.holds("D")
	}
}

const acquireL5 = `
local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('SETNX', KEYS[1], now + timeout) == 1 then return 0 end
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 2 end
if now > tonumber(redis.call('GET', KEYS[1])) then
  redis.call('SET', KEYS[1], now + timeout)
  return 0
end
return 1`

// tellL5: each step is atomic, and a release must prove its ownership; but the time is the
// client's.
func tellL5(s *scene) {
	if s.eval("A", "acquire", acquireL5, s.now, 10) == "0" {
		s.holds("A")
	}
	s.later(1, "B tries; its clock is 15 s ahead")
	if s.eval("B", "acquire", acquireL5, s.now+15, 10) == "0" {
		s.holds("B")
	}
}
