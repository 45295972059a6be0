package foreign

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
)

// scripts have the shapes that lock libraries use, in words of their own.
var scripts = []struct {
	name, source string
	want         Does
}{
	{"compare and delete", // redis-py, redlock-rb, node-redlock, bsm/redislock, Laravel, ShedLock
		`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
		return 0`, Frees},
	{"compare and delete, a local", // redis-py
		`local token = redis.call('get', KEYS[1])
		if not token or token ~= ARGV[1] then return 0 end
		redis.call('del', KEYS[1])
		return 1`, Frees},
	{"with a third answer", // redsync
		`local v = redis.call("GET", KEYS[1])
		if v == ARGV[1] then return redis.call("DEL", KEYS[1])
		elseif v == false then return -1 else return 0 end`, Frees},
	{"UNLINK and PUBLISH", // Spring
		`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1])
		redis.call('PUBLISH', ARGV[2], KEYS[1]) return true end return false`, Frees},
	{"signals by a list", // python-redis-lock
		`if redis.call("get", KEYS[1]) ~= ARGV[1] then return 1 else
		redis.call("del", KEYS[2]) redis.call("lpush", KEYS[2], 1)
		redis.call("pexpire", KEYS[2], ARGV[2]) redis.call("del", KEYS[1]) return 0 end`, Frees},
	{"several keys", // node-redlock
		`local n = 0
		for i, key in ipairs(KEYS) do
			-- only the caller's
			if redis.call("get", key) == ARGV[1] then n = n + redis.pcall("del", key) end
		end
		return n`, Frees},
	{"a hash", // Redisson
		`if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end; local c =
		redis.call('hincrby', KEYS[1], ARGV[3], -1); if (c > 0) then redis.call('pexpire', KEYS[1],
		ARGV[2]); return 0; else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2],
		ARGV[1]); return 1; end; return nil;`, Frees},
	{"a sorted set", // Symfony
		`local key = KEYS[1]
		if redis.call("TYPE", key).ok == "string" then return false end
		if not redis.call("ZSCORE", key, ARGV[1]) then return true end
		redis.call("ZREM", key, ARGV[1])
		redis.call("ZREM", key, "__write__")
		return true`, Frees},

	{"compare and extend", `if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`, Extends},
	{"compare and set again", // node-redlock
		`for i, key in ipairs(KEYS) do
			if redis.call("get", key) ~= ARGV[1] then return 0 end
			redis.call("set", key, ARGV[1], "PX", ARGV[2])
		end
		return #KEYS`, Extends},
	{"what is left and more", // redis-py
		`local token = redis.call('get', KEYS[1])
		if not token or token ~= ARGV[1] then return 0 end
		local left = redis.call('pttl', KEYS[1])
		if not left then left = 0 end
		redis.call('pexpire', KEYS[1], left + ARGV[2])
		return 1`, Extends},
	{"a hash", `if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
		redis.call('pexpire', KEYS[1], ARGV[1]); return 1; end; return 0;`, Extends},
	{"a sorted set", `local key = KEYS[1]
		if not redis.call("ZSCORE", key, ARGV[2]) then return false end
		redis.call("ZADD", key, ARGV[3] + 1, ARGV[2])
		redis.call("PEXPIREAT", key, redis.call("ZREVRANGE", key, 0, 0, "WITHSCORES")[2])
		return true`, Extends},

	{"set if missing", // ShedLock and many
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`, Takes},
	{"exists, or the caller's", // redlock-rb
		`if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or
		redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]) end`, Takes},
	{"several keys", // node-redlock
		`for i, key in ipairs(KEYS) do
			if redis.call("exists", key) == 1 then return 0 end
		end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
		return #KEYS`, Takes},
	{"reentrant", // Spring
		`local id = redis.call('GET', KEYS[1])
		if id == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true
		elseif not id then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end
		return false`, Takes},
	{"MSETNX", // bsm/redislock
		`local all = {}
		for i, key in ipairs(KEYS) do all[2 * i - 1], all[2 * i] = key, ARGV[1] end
		if redis.call("msetnx", unpack(all)) ~= 1 then
			for _, key in ipairs(KEYS) do
				if redis.call("getrange", key, 0, 21) ~= ARGV[1] then return false end
			end
			redis.call("mset", unpack(all))
		end
		for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[3]) end
		return redis.status_reply("OK")`, Takes},
	{"SETNX and EXPIRE", `if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then
		redis.call('expire', KEYS[1], ARGV[2]) return 1 end return 0`, Takes},
	{"a sorted set", `local key = KEYS[1]
		redis.call("ZREMRANGEBYSCORE", key, "-inf", ARGV[1])
		if redis.call("ZSCORE", key, ARGV[2]) then return true end
		if redis.call("ZCARD", key) > 0 then return false end
		redis.call("ZADD", key, ARGV[1] + ARGV[3], ARGV[2])
		redis.call("PEXPIREAT", key, ARGV[1] + ARGV[3])
		return true`, Takes},
	{"a hash", `if ((redis.call('exists', KEYS[1]) == 0) or
		(redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2],
		1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl',
		KEYS[1]);`, TakesHash},

	{"a counter", `local n = redis.call('incr', KEYS[1])
		if n == 1 then redis.call('expire', KEYS[1], ARGV[1]) end return n`, Unknown},
	{"a sliding window", `redis.call('zremrangebyscore', KEYS[1], 0, ARGV[1])
		if redis.call('zcard', KEYS[1]) < 10 then redis.call('zadd', KEYS[1], ARGV[2], ARGV[2])
		redis.call('expire', KEYS[1], 60) return 1 end return 0`, Unknown},
	{"a bucket", `local b = redis.call('hmget', KEYS[1], 'tokens', 'at')
		if not b[1] then b = {10, ARGV[1]} end
		redis.call('hset', KEYS[1], 'tokens', b[1] - 1, 'at', ARGV[1])
		redis.call('expire', KEYS[1], 60) return 1`, Unknown},
	{"a read", `return redis.call('get', KEYS[1])`, Unknown},
	{"a commented lock", `-- redis.call('set', KEYS[1], 'NX', 'PX', 1)
		return 1`, Unknown},
	{"nothing", `return 1`, Unknown},
	{"no Lua", `call("call('call`, Unknown},
	{"too long", strings.Repeat("-", maxScript) + `redis.call('setnx', KEYS[1], 1)`, Unknown},
}

func TestShapeOf(t *testing.T) {
	for _, s := range scripts {
		if got := ShapeOf(s.source); got.Does != s.want {
			t.Errorf("%s: %v, want %v", s.name, got.Does, s.want)
		}
	}
}

// A script is known by its hash once its text has passed by; not more are kept than are allowed.
func TestShapes(t *testing.T) {
	shapes := NewShapes()
	const source = "return redis.call('set',KEYS[1],ARGV[1],'NX','EX',ARGV[2])"
	sha := []byte("D20BFC3BFEE4FE0AD1F0FD2A2E5F0D4D6F8E0E1A") // not its
	if _, known := shapes.OfHash(sha); known {
		t.Error("known before it has passed by")
	}
	want := Shape{Takes, true}
	if got := shapes.OfText([]byte(source)); got != want {
		t.Errorf("%v", got)
	}
	for sha := range shapes.byHash {
		if got, known := shapes.OfHash([]byte(strings.ToUpper(sha))); !known || got != want {
			t.Errorf("by its hash: %v, %v", got, known)
		}
	}
	for i := range 3 * maxShapes {
		shapes.OfText([]byte(strings.Repeat(" ", i)))
		if len(shapes.byText) > maxShapes || len(shapes.byHash) > maxShapes {
			t.Fatalf("%d scripts are remembered", len(shapes.byText))
		}
	}
}

func args(line string) (args [][]byte) {
	for _, word := range strings.Fields(line) {
		args = append(args, []byte(strings.ReplaceAll(word, "_", " ")))
	}
	return args
}

func TestRead(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	one := []int{1}
	for _, c := range []struct {
		role Role
		line string
		keys []int
		want Action
		ttl  time.Duration
	}{
		{Sets, "SET k v", one, Nothing, 0},
		{Sets, "SET k v EX 10", one, Nothing, 0},
		{Sets, "SET k v XX EX 10", one, Nothing, 0},
		{Sets, "SET k v NX", one, Candidate, 0},
		{Sets, "SET k v NX PX 1500", one, Take, 1500 * time.Millisecond},
		{Sets, "set k v ex 10 nx", one, Take, 10 * time.Second},
		{Sets, "SET k v NX PXAT 1700000002000", one, Take, 2 * time.Second},
		{Sets, "SET k v EXAT 1700000003 NX", one, Take, 3 * time.Second},
		{Sets, "SET k v NX PX 9223372036854775807", one, Take, 0},
		{Sets, "SET k v NX GET PX 10", one, TakeNull, 10 * time.Millisecond},
		{SetsNX, "SETNX k v", one, Candidate, 0},
		{SetsNX, "SETNX k 1700000005", one, Take, 5 * time.Second},
		{SetsNX, "SETNX k 1700000005000", one, Take, 5 * time.Second},
		{SetsNX, "SETNX k 1600000005000", one, Candidate, 0},
		{Expires, "EXPIRE k 5", one, Extend, 5 * time.Second},
		{Expires, "pexpireat k 1700000000005", one, Extend, 5 * time.Millisecond},
		{Expires, "EXPIRE k", one, Extend, 0},
		{Deletes, "DEL k l", []int{1, 2}, Release, 0},
		{Deletes, "DEL", nil, Nothing, 0},
		{Replaces, "GETSET k v", one, Touch, 0},
		{Runs, "EVAL return_1 1 k v", []int{3}, Touch, 0},
		{Runs, "EVALSHA 0123456789012345678901234567890123456789 1 k v 300", []int{3}, Touch,
			300 * time.Millisecond},
		{Runs, "EVAL return_redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) 1 k v 300",
			[]int{3}, Take, 300 * time.Millisecond},
	} {
		r := Read(c.role, args(c.line), c.keys, NewShapes(), now)
		if r.Action != c.want || r.TTL != c.ttl {
			t.Errorf("%s: action %d for %v, want %d for %v", c.line, r.Action, r.TTL, c.want, c.ttl)
		}
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		a    Action
		kind byte
		line string
		want Outcome
	}{
		{Take, '+', "OK", Yes}, {Take, '$', "-1", No}, {Take, '_', "", No}, {Take, ':', "0", No},
		{Take, ':', "1", Yes}, {Take, '-', "ERR no", Failed}, {Take, '+', "QUEUED", Queued},
		{Take, '#', "f", No}, {Take, '#', "t", Yes}, {Take, '$', "2", Yes},
		{TakeNull, '$', "-1", Yes}, {TakeNull, ':', "3000", No}, {TakeNull, '_', "", Yes},
		{Release, ':', "2", Yes}, {Release, ':', "-1", No}, {Extend, ':', "1", Yes},
		{Take, ':', "", Yes}, {TakeNull, '-', "WRONGTYPE Operation against a key", No},
		{TakeNull, '-', "ERR Error running script (call to f_", No},
	} {
		if got := c.a.Outcome(resp.Head{Type: c.kind, Line: []byte(c.line)}); got != c.want {
			t.Errorf("action %d, %c%s: %d, want %d", c.a, c.kind, c.line, got, c.want)
		}
	}
}
