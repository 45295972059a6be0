package cluster

import (
	"bytes"
	"strings"

	"lockproxy/internal/resp"
)

// keyRule says which arguments of a command are keys. The zero value says that none are. It is pure.
type keyRule struct {
	// first, last and step are as in Redis's COMMAND: positions from the command's name, 0; a negative last counts from the end.
	first, last, step int
	// find is for commands whose keys aren't at fixed places. It appends their positions to at.
	find func(args [][]byte, at []int) []int
}

// positions appends to at where the keys of a request are. A request that has too few arguments has those that are there.
func (r *keyRule) positions(args [][]byte, at []int) []int {
	if r.find != nil {
		return r.find(args, at)
	}
	if r.first == 0 {
		return at
	}
	last := r.last
	if last < 0 {
		last += len(args)
	}
	for i := r.first; i <= last && i < len(args); i += r.step {
		at = append(at, i)
	}
	return at
}

// keyTable are the rules of all commands that have keys, by name in lower case, and "name|subcommand" where only some have.
var keyTable = makeKeyTable()

func makeKeyTable() map[string]keyRule {
	t := map[string]keyRule{}
	add := func(rule keyRule, names string) {
		for _, name := range strings.Fields(names) {
			t[name] = rule
		}
	}
	add(keyRule{first: 1, last: 1, step: 1}, `
		append bitcount bitfield bitfield_ro bitpos decr decrby delex digest dump expire expireat expiretime geoadd geodist geohash geopos
		georadius_ro georadiusbymember_ro geosearch get getbit getdel getex getrange getset hdel hexists hexpire hexpireat
		hexpiretime hget hgetall hgetdel hgetex hincrby hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat hpexpiretime
		hpttl hrandfield hscan hset hsetex hsetnx hstrlen httl hvals incr incrby incrbyfloat lindex linsert llen lpop lpos lpush lpushx
		lrange lrem lset ltrim move persist pexpire pexpireat pexpiretime pfadd psetex pttl restore restore-asking rpop rpush rpushx
		sadd scard set setbit setex setnx setrange sismember smembers smismember spop spublish srandmember srem sscan
		strlen substr ttl type vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem vsetattr vsim
		xack xackdel xadd xautoclaim xclaim xdel xdelex xlen xpending xrange xrevrange xsetid xtrim zadd
		zcard zcount zincrby zlexcount zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrank zrem
		zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore`)
	add(keyRule{first: 1, last: -1, step: 1}, `del exists mget pfcount pfmerge sdiff sdiffstore sinter sinterstore ssubscribe sunion
		sunionstore sunsubscribe touch unlink watch`)
	add(keyRule{first: 1, last: -1, step: 2}, `mset msetnx`)
	add(keyRule{first: 1, last: -2, step: 1}, `blpop brpop bzpopmax bzpopmin`)
	add(keyRule{first: 1, last: 2, step: 1}, `copy geosearchstore lcs lmove rename renamenx rpoplpush smove zrangestore blmove brpoplpush`)
	add(keyRule{first: 2, last: -1, step: 1}, `bitop`)
	add(keyRule{first: 2, last: 2, step: 1}, `memory|usage object|encoding object|freq object|idletime object|refcount xgroup|create
		xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid xinfo|consumers xinfo|groups xinfo|stream debug|object`)
	add(keyRule{find: counted(2)}, `eval eval_ro evalsha evalsha_ro fcall fcall_ro blmpop bzmpop`)
	add(keyRule{find: counted(1)}, `lmpop sintercard zdiff zinter zintercard zmpop zunion`)
	add(keyRule{find: destinationAnd(counted(2))}, `zdiffstore zinterstore zunionstore`)
	add(keyRule{find: streams}, `xread xreadgroup`)
	add(keyRule{find: keyAnd("store", "storedist")}, `georadius georadiusbymember`)
	add(keyRule{find: sorted}, `sort`)
	add(keyRule{find: keyAnd()}, `sort_ro`)
	add(keyRule{find: migrated}, `migrate`)
	add(keyRule{find: countedPairs}, `msetex`)
	return t
}

// counted is for commands that say at position n how many keys follow.
func counted(n int) func(args [][]byte, at []int) []int {
	return func(args [][]byte, at []int) []int {
		for i := n + 1; i <= n+count(args, n) && i < len(args); i++ {
			at = append(at, i)
		}
		return at
	}
}

// count reads the number at position n; 0 if there is none.
func count(args [][]byte, n int) int {
	if n >= len(args) {
		return 0
	}
	keys, _ := resp.ParseInt(args[n])
	return int(min(max(keys, 0), int64(len(args))))
}

// destinationAnd is for those that besides have a key right behind the name.
func destinationAnd(find func([][]byte, []int) []int) func([][]byte, []int) []int {
	return func(args [][]byte, at []int) []int {
		if len(args) > 1 {
			at = append(at, 1)
		}
		return find(args, at)
	}
}

// streams is for XREAD and XREADGROUP: behind STREAMS come the keys and as many ids.
func streams(args [][]byte, at []int) []int {
	i := 1
	if len(args) > 1 && bytes.EqualFold(args[0], []byte("xreadgroup")) {
		i = 4 // GROUP group consumer: names that may be any word
	}
	for ; i < len(args); i++ {
		if bytes.EqualFold(args[i], []byte("streams")) {
			for j := i + 1; j <= i+(len(args)-i-1)/2; j++ {
				at = append(at, j)
			}
			return at
		}
	}
	return at
}

// keyAnd is for commands whose first argument is a key, and so is what stands behind each of words.
func keyAnd(words ...string) func(args [][]byte, at []int) []int {
	return func(args [][]byte, at []int) []int {
		if len(args) > 1 {
			at = append(at, 1)
		}
		for _, word := range words {
			for i := 2; i+1 < len(args); i++ {
				if strings.EqualFold(word, string(args[i])) {
					at = append(at, i+1)
					break
				}
			}
		}
		return at
	}
}

// sorted is for SORT: its key, and what stands behind the last STORE that is none of a pattern's words.
func sorted(args [][]byte, at []int) []int {
	if len(args) > 1 {
		at = append(at, 1)
	}
	store := 0
	for i := 2; i+1 < len(args); i++ {
		switch strings.ToLower(string(args[i])) {
		case "limit":
			i += 2
		case "get", "by":
			i++
		case "store":
			i++
			store = i
		}
	}
	if store > 0 {
		at = append(at, store)
	}
	return at
}

// migrated is for MIGRATE, whose key is at the third place or, if that is empty, behind KEYS.
func migrated(args [][]byte, at []int) []int {
	if len(args) <= 3 {
		return at
	}
	if len(args[3]) > 0 {
		return append(at, 3)
	}
	for i := 6; i < len(args); i++ {
		switch {
		case bytes.EqualFold(args[i], []byte("auth")):
			i++
		case bytes.EqualFold(args[i], []byte("auth2")):
			i += 2
		case bytes.EqualFold(args[i], []byte("keys")):
			for j := i + 1; j < len(args); j++ {
				at = append(at, j)
			}
			return at
		}
	}
	return at
}

// countedPairs is for MSETEX numkeys key value ….
func countedPairs(args [][]byte, at []int) []int {
	for i, n := 2, count(args, 1); n > 0 && i < len(args); i, n = i+2, n-1 {
		at = append(at, i)
	}
	return at
}
