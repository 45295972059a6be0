package proxy

import (
	"bytes"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// command is what the proxy knows of one command: how to run it, if it is a lock command, or else what its reply does to
// the state of the connection, and whether others may use the same. What isn't in the table is relayed on a connection of the
// session's own, which it keeps, since nobody knows what it leaves there.
type command struct {
	lock   *lockcmd.Spec
	way    passthrough.Way // by what connection it may go
	effect passthrough.Effect
	// identity returns what the connection becomes once the command has succeeded, and its name if that is set too.
	identity func(args [][]byte) (*passthrough.Identity, *string)
	// inspect decides by the arguments, for commands whose subcommands or options differ.
	inspect func(r route, args [][]byte) route
	// catchUp is for WAIT and WAITAOF, which are about what the same connection has written.
	catchUp []string
	// introspect is for COMMAND, whose answer tells of the lock commands too.
	introspect bool
	// informs is for INFO, which has a section of the proxy's own.
	informs bool
	// shapes is for CLUSTER, which in front of a cluster tells of this proxy.
	shapes bool
	// ofNode is for what a client tells one node of a cluster about itself.
	ofNode bool
	kind   Kind // as what it is counted
	// competes names the keys at which a client that doesn't know LOCK may be taking a lock.
	competes func(args [][]byte) [][]byte
}

// table is the one table of commands, by name in lower case.
var table = commandTable()

func commandTable() map[string]*command {
	t := map[string]*command{
		"multi":        {effect: passthrough.Multi},
		"exec":         {effect: passthrough.Exec},
		"discard":      {effect: passthrough.Discard},
		"watch":        {effect: passthrough.Watch},
		"unwatch":      {effect: passthrough.Unwatch},
		"select":       {effect: passthrough.Select, identity: selectIdentity},
		"auth":         {effect: passthrough.Auth, identity: authIdentity},
		"hello":        {effect: passthrough.Hello, identity: helloIdentity},
		"reset":        {effect: passthrough.Reset},
		"quit":         {effect: passthrough.Quit},
		"shutdown":     {effect: passthrough.Closes},
		"post":         {effect: passthrough.Closes}, // Redis closes: a browser was made to send it
		"host:":        {effect: passthrough.Closes},
		"subscribe":    {effect: passthrough.Subscribe},
		"psubscribe":   {effect: passthrough.PSubscribe},
		"ssubscribe":   {effect: passthrough.SSubscribe},
		"unsubscribe":  {effect: passthrough.Unsubscribe},
		"punsubscribe": {effect: passthrough.PUnsubscribe},
		"sunsubscribe": {effect: passthrough.SUnsubscribe},
		"monitor":      {effect: passthrough.Monitor},
		"sync":         {effect: passthrough.Replicate},
		"psync":        {effect: passthrough.Replicate},
		"client":       {inspect: inspectClient, effect: passthrough.Stays}, // the effect of one too large to be inspected
		"replconf":     {inspect: inspectReplconf, effect: passthrough.Stays},
		"script":       {inspect: inspectScript, way: passthrough.Shared},
		"function":     {inspect: inspectScript, way: passthrough.Shared},
		"xread":        {inspect: inspectRead, way: passthrough.Shared},
		"xreadgroup":   {inspect: inspectRead, way: passthrough.Shared},
		"wait":         {catchUp: []string{"WAIT", "0", "0"}},
		"waitaof":      {catchUp: []string{"WAITAOF", "0", "0", "0"}},
		"command":      {introspect: true, way: passthrough.Shared, kind: Introspects},
		"info":         {informs: true, way: passthrough.Shared},
		"cluster":      {shapes: true, way: passthrough.Shared},
		"readonly":     {ofNode: true, effect: passthrough.Marks},
		"readwrite":    {ofNode: true, effect: passthrough.Marks},
		"asking":       {ofNode: true, effect: passthrough.Marks},
		"set":          {competes: setIfMissing, way: passthrough.Shared},
		"setnx":        {competes: firstKey, way: passthrough.Shared},
		"getset":       {competes: firstKey, way: passthrough.Shared},
		"eval":         {competes: scriptKeys, way: passthrough.Scripts},
		"evalsha":      {competes: scriptKeys, way: passthrough.Scripts},
	}
	for _, name := range strings.Fields(shareable) {
		t[name] = &command{way: passthrough.Shared}
	}
	for _, name := range strings.Fields(scripting) {
		t[name] = &command{way: passthrough.Scripts}
	}
	for _, name := range strings.Fields(blocking) {
		t[name] = &command{}
	}
	for i := range lockcmd.Specs {
		spec := &lockcmd.Specs[i]
		t[spec.Name] = &command{lock: spec, way: passthrough.Shared, kind: kindOf(spec)}
	}
	t["fence"].way = passthrough.Own // it is a transaction
	return t
}

// shareable are the commands that neither depend on the connection they come by nor change it, and don't wait.
const shareable = `
	acl append bgrewriteaof bgsave bitcount bitfield bitfield_ro bitop bitpos config copy dbsize decr decrby del
	dump echo exists expire expireat expiretime failover flushall flushdb geoadd geodist
	geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel getex
	getrange hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex hincrby hincrbyfloat hkeys hlen hmget hmset hpersist
	hpexpire hpexpireat hpexpiretime hpttl hrandfield hscan hset hsetex hsetnx hstrlen httl hvals incr incrby incrbyfloat keys
	lastsave latency lcs lindex linsert llen lmove lmpop lolwut lpop lpos lpush lpushx lrange lrem lset ltrim memory mget migrate move
	mset msetnx object persist pexpire pexpireat pexpiretime pfadd pfcount pfmerge ping psetex pttl publish pubsub randomkey rename
	renamenx replicaof restore role rpop rpoplpush rpush rpushx sadd save scan scard sdiff sdiffstore setbit setex setrange sinter
	sintercard sinterstore sismember slaveof slowlog smembers smismember smove sort sort_ro spop spublish srandmember srem sscan strlen
	substr sunion sunionstore swapdb time touch ttl type unlink xack xackdel xadd xautoclaim xclaim xdel xdelex xgroup xinfo xlen
	xpending xrange xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop
	zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank
	zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore`

// scripting are those that run scripts, like eval and evalsha.
const scripting = `eval_ro evalsha_ro fcall fcall_ro`

// blocking are those that may wait for another client. They leave nothing on the connection.
const blocking = `blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin`

// unknown is every command that isn't in the table.
var unknown = &command{effect: passthrough.Stays}

// maxCommandName is longer than any name in the table.
const maxCommandName = 24

func lookup(name []byte) *command {
	var lower [maxCommandName]byte
	if len(name) > maxCommandName {
		return unknown
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	if cmd := table[string(lower[:len(name)])]; cmd != nil {
		return cmd
	}
	return unknown
}

// plain reports whether every request of the command may share a connection and is relayed as it is. waiting says that the keys at
// which clients compete with LOCK are of interest.
func (c *command) plain(waiting bool) bool {
	return c.way == passthrough.Shared && c.effect == passthrough.NoEffect && !c.whole() && c.relayed(waiting)
}

// relayed reports whether requests of the command are passed on in one step, and their replies likewise. waiting is as for plain.
func (c *command) relayed(waiting bool) bool {
	return c.lock == nil && !c.introspect && !c.informs && !c.shapes && c.catchUp == nil && (c.competes == nil || !waiting)
}

// whole reports whether the command must be seen whole before it can be passed on.
func (c *command) whole() bool {
	return c.lock != nil || c.identity != nil || c.inspect != nil || c.introspect || c.informs || c.shapes
}

// fenceable reports whether a request may run within a transaction of the proxy's own: whether it
// neither blocks nor does anything to the connection, as far as anybody knows.
func (c *command) fenceable(args [][]byte) bool {
	r := route{Expect: passthrough.Expect{Effect: c.effect}, way: c.way}
	if c.inspect != nil {
		r = c.inspect(r, args)
	}
	return c == unknown || c.lock == nil && r.Effect == passthrough.NoEffect && r.way != passthrough.Own
}

func firstKey(args [][]byte) [][]byte {
	if len(args) < 2 {
		return nil
	}
	return args[1:2]
}

// setIfMissing reads SET key value … NX, which many libraries send for SETNX.
func setIfMissing(args [][]byte) [][]byte {
	for _, option := range args[min(3, len(args)):] {
		if bytes.EqualFold(option, []byte("nx")) {
			return args[1:2]
		}
	}
	return nil
}

// scriptKeys reads EVAL script numkeys key ….
func scriptKeys(args [][]byte) [][]byte {
	if len(args) < 4 {
		return nil
	}
	n, _ := resp.ParseInt(args[2])
	return args[3 : 3+max(0, min(int(n), len(args)-3))]
}
