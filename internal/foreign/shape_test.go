package foreign

import (
	"strings"
	"testing"
)

// scripts have the shapes that lock libraries use, in other words.
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
	{"a sorted set", // Symfony, which counts by ZCOUNT
		`local key = KEYS[1]
		local me = ARGV[2]
		if redis.call("TYPE", key).ok == "string" then return false end
		local now = redis.call("TIME")
		now = now[1] * 1000 + math.floor(now[2] / 1000)
		redis.call("ZREMRANGEBYSCORE", key, "-inf", now)
		if redis.call("ZSCORE", key, me) then
			if not redis.call("ZSCORE", key, "__write__") and
				redis.call("ZCOUNT", key, "-inf", "+inf") > 1 then return false end
		elseif redis.call("ZCOUNT", key, "-inf", "+inf") > 0 then return false end
		redis.call("ZADD", key, now + ARGV[3], me)
		redis.call("ZADD", key, now + ARGV[3], "__write__")
		redis.call("PEXPIREAT", key, redis.call("ZREVRANGE", key, 0, 0, "WITHSCORES")[2])
		return true`, Takes},
	{"with a read behind it", // rueidislock
		`local r = redis.call("SET", KEYS[1], ARGV[1], "NX", "PXAT", ARGV[2])
		redis.call("GET", KEYS[1])
		return r`, Takes},
	{"extends, otherwise takes", // redsync
		`if redis.call("GET", KEYS[1]) == ARGV[1] then
			return redis.call("PEXPIRE", KEYS[1], ARGV[2])
		elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then
			return 1
		else
			return 0
		end`, Takes},
	{"0 if it is held", `if redis.call('setnx', KEYS[1], ARGV[1]) == 0 then return 0 end
		redis.call('pexpire', KEYS[1], ARGV[2])
		return 1`, Takes},
	{"0 if SET says nothing", `local ok = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
		if not ok then return 0 end
		return 1`, Takes},
	{"0 otherwise", `if redis.call('exists', KEYS[1]) == 0 then
			return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
		end
		return 0`, Takes},
	{"0 else", `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
		notify = 1 else return 0 end return notify`, Takes},
	{"0 if it is taken", `if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
			redis.call('EXPIRE', KEYS[1], ARGV[2])
			return 0
		end
		return 1`, TakesZero},
	{"0 if SET says OK", `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
		return 0 end return 1`, TakesZero},
	{"0 at the end", `if redis.call('exists', KEYS[1]) == 1 then return 1 end
		redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
		return (0)`, TakesZero},
	{"0 without a condition", `redis.call('setnx', KEYS[1], 1)
		redis.call('expire', KEYS[1], 9) return 0`, TakesZero},
	{"GETSET of a timestamp", // L4
		`local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
		if redis.call('SETNX', KEYS[1], now + timeout + 1) == 1 then
			redis.call('EXPIRE', KEYS[1], timeout + 1)
			return 0
		end
		local value = redis.call('GET', KEYS[1])
		if not value then return 1 end
		if now < tonumber(value) then return 2 end
		if redis.call('GETSET', KEYS[1], now + timeout + 1) == value then
			redis.call('EXPIRE', KEYS[1], timeout + 1)
			return 0
		end
		return 3`, TakesZero},
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

// The scripts of libraries are known before they have passed by.
func TestKnownScripts(t *testing.T) {
	shapes := NewShapes()
	for sha, want := range known {
		got, ok := shapes.OfHash([]byte(strings.ToUpper(sha)))
		if !ok || got != want || len(sha) != 40 || got.Does == Unknown {
			t.Errorf("%s: %v, %v", sha, got, ok)
		}
	}
}

// A script is known by its hash once its text has passed by, and their number is bounded.
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
