package commands

import "lockproxy/internal/foreign"

// Why a cluster as a whole can't run a command.
const (
	oneNodesData  = "it is about the data of one node"
	endsOneNode   = "it would end one node"
	aboutOneNode  = "it is about one node"
	debugsOneNode = "it debugs the scripts of one node"
)

// table is all that is known of commands, by name in lower case. Names that stand together are
// alike.
var table = []Command{
	// Data.
	{Name: `bitcount bitfield_ro bitpos clusterscan digest dump expiretime geodist geohash
		geopos georadius_ro georadiusbymember_ro geosearch get getbit getrange hexists hexpiretime
		hget hgetall hkeys hlen hmget hpexpiretime hpttl hrandfield hscan hstrlen httl hvals
		lindex llen lpos lrange pexpiretime pttl scard sismember smembers smismember
		srandmember sscan strlen substr ttl type vcard vdim vemb vgetattr vinfo vismember
		vlinks vrandmember vrange xlen xpending xrange xrevrange zcard zcount zlexcount
		zmscore zrandmember zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex
		zrevrangebyscore zrevrank zscan zscore`,
		Class: Shared, Reads: true, Keys: at(1, 1, 1)},
	{Name: `geoadd hdel hexpire hexpireat hgetdel hgetex hincrby hincrbyfloat hmset hpersist
		hpexpire hpexpireat hset hsetex hsetnx linsert lpop lpush lpushx lrem lset ltrim pfadd
		rpop rpush rpushx sadd spop spublish srem vrem vsetattr xack xackdel xadd xautoclaim
		xcfgset xclaim xdel xdelex xidmprecord xsetid xtrim zadd zincrby zpopmax zpopmin zrem
		zremrangebylex zremrangebyrank zremrangebyscore`,
		Class: Shared, Keys: at(1, 1, 1)},
	{Name: `append bitfield decr decrby getdel getex incr incrby incrbyfloat move persist psetex
		restore restore-asking setbit setex setrange`,
		Class: Shared, Keys: at(1, 1, 1), EndsLock: true},
	{Name: "vadd vsim", Class: Slow, Keys: at(1, 1, 1)}, // in a thread
	{Name: "set", Class: Shared, Keys: at(1, 1, 1), Foreign: foreign.Sets, EndsLock: true},
	{Name: "setnx", Class: Shared, Keys: at(1, 1, 1), Foreign: foreign.SetsNX},
	{Name: "getset", Class: Shared, Keys: at(1, 1, 1), Foreign: foreign.Replaces,
		EndsLock: true},
	{Name: "expire expireat pexpire pexpireat", Class: Shared, Keys: at(1, 1, 1),
		Foreign: foreign.Expires, EndsLock: true},
	{Name: "delex delifeq", Class: Shared, Keys: at(1, 1, 1), Foreign: foreign.Deletes,
		EndsLock: true},
	{Name: "pfcount sdiff sinter sunion", Class: Shared, Keys: at(1, -1, 1)},
	{Name: "pfmerge sdiffstore sinterstore sunionstore", Class: Shared, Keys: at(1, -1, 1),
		EndsLock: true},
	{Name: "mget", Class: Shared, Reads: true, Keys: at(1, -1, 1), Nodes: Split},
	{Name: "exists touch", Class: Shared, Reads: true, Keys: at(1, -1, 1), Nodes: Split,
		Join: Sum},
	{Name: "del unlink", Class: Shared, Keys: at(1, -1, 1), Nodes: Split, Join: Sum,
		Foreign: foreign.Deletes, EndsLock: true},
	{Name: "mset", Class: Shared, Keys: at(1, -1, 2), Nodes: Split, EndsLock: true},
	{Name: "msetnx", Class: Shared, Keys: at(1, -1, 2)},
	{Name: "msetex", Class: Shared, Keys: found(countedPairs), EndsLock: true},
	{Name: "lcs lmove rpoplpush smove", Class: Shared, Keys: at(1, 2, 1)},
	{Name: "copy geosearchstore rename renamenx zrangestore", Class: Shared, Keys: at(1, 2, 1),
		EndsLock: true},
	{Name: "bitop", Class: Shared, Keys: at(2, -1, 1), EndsLock: true},
	{Name: "lmpop sintercard zdiff zinter zintercard zmpop zunion", Class: Shared,
		Keys: found(counted(1))},
	{Name: "zdiffstore zinterstore zunionstore", Class: Shared,
		Keys: found(destinationAnd(counted(2))), EndsLock: true},
	{Name: "georadius georadiusbymember", Class: Shared, Keys: found(keyAnd("store", "storedist")),
		EndsLock: true},
	{Name: "sort", Class: Shared, Keys: found(sorted), EndsLock: true},
	{Name: "sort_ro", Class: Shared, Reads: true, Keys: found(keyAnd())},
	{Name: "migrate", Class: Shared, Keys: found(migrated), EndsLock: true},
	{Name: "xread xreadgroup", Class: MayBlock, Keys: found(streams)},
	{Name: "blmove brpoplpush", Class: Blocking, Keys: at(1, 2, 1)},
	{Name: "blpop brpop bzpopmax bzpopmin", Class: Blocking, Keys: at(1, -2, 1)},
	{Name: "blmpop bzmpop", Class: Blocking, Keys: found(counted(2))},
	{Name: "xgroup xinfo memory object", Class: Shared},
	{Name: `memory|usage object|encoding object|freq object|idletime object|refcount
		xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid
		xinfo|consumers xinfo|groups xinfo|stream`, Class: Shared, Keys: at(2, 2, 1)},

	// All keys.
	{Name: "dbsize", Class: Shared, Reads: true, Nodes: Masters, Join: Sum},
	{Name: "keys", Class: Shared, Reads: true, Nodes: Masters, Join: Elements},
	// Until a thread has freed what they delete, as of Redis 7.4, unless they say ASYNC.
	{Name: "flushall flushdb", Class: Occupying, Nodes: Masters, EndsLock: true},
	{Name: "sflush trimslots", Class: Occupying, Refused: oneNodesData},
	{Name: "scan randomkey", Class: Shared, Reads: true}, // in a cluster one node after the other
	{Name: "swapdb", Class: Shared, EndsLock: true},

	// Scripts.
	{Name: "eval evalsha", Class: Slow, Keys: found(counted(2)), Foreign: foreign.Runs,
		EndsLock: true},
	{Name: "fcall", Class: Slow, Keys: found(counted(2)), EndsLock: true},
	{Name: "eval_ro evalsha_ro fcall_ro", Class: Slow, Keys: found(counted(2))},
	{Name: "script function", Class: Shared},
	{Name: "script|load", Class: Shared, Nodes: All},
	{Name: "script|exists", Class: Shared, Nodes: Masters, Join: MinEach},
	{Name: "script|flush function|load function|delete function|flush function|restore",
		Class: Shared,
		Nodes: Masters},
	{Name: "script|kill function|kill", Class: Stateful, Nodes: AnyMaster}, // not behind the script
	{Name: "script|debug", Class: Stateful, Effect: StickyState, Refused: debugsOneNode},

	// Modules that come with Redis 8.
	{Name: `json.arrappend json.arrindex json.arrinsert json.arrlen json.arrpop json.arrtrim json.clear
		json.del json.forget json.get json.merge json.numincrby json.nummultby json.numpowby
		json.objkeys json.objlen json.resp json.set json.strappend json.strlen json.toggle json.type
		bf.add bf.card bf.exists bf.info bf.insert bf.loadchunk bf.madd bf.mexists bf.reserve
		bf.scandump cf.add cf.addnx cf.count cf.del cf.exists cf.info cf.insert cf.insertnx
		cf.loadchunk cf.mexists cf.reserve cf.scandump cms.incrby cms.info cms.initbydim
		cms.initbyprob cms.query topk.add topk.count topk.incrby topk.info topk.list topk.query
		topk.reserve tdigest.add tdigest.byrank tdigest.byrevrank tdigest.cdf tdigest.create
		tdigest.info tdigest.max tdigest.min tdigest.quantile tdigest.rank tdigest.reset
		tdigest.revrank tdigest.trimmed_mean ts.add ts.alter ts.create ts.decrby ts.del ts.get
		ts.incrby ts.info ts.range ts.revrange ft.sugadd ft.sugdel ft.sugget ft.suglen`,
		Class: Shared, Keys: at(1, 1, 1)},
	{Name: "json.mget", Class: Shared, Keys: at(1, -2, 1)},
	{Name: "json.mset ts.madd", Class: Shared, Keys: at(1, -1, 3)},
	{Name: "cms.merge tdigest.merge", Class: Shared, Keys: found(destinationAnd(counted(2)))},
	{Name: "ts.createrule ts.deleterule", Class: Shared, Keys: at(1, 2, 1)},
	{Name: "ts.mget ts.mrange ts.mrevrange ts.queryindex", Class: Shared},
	{Name: `ft._list ft.aggregate ft.aliasadd ft.aliasdel ft.aliasupdate ft.alter ft.create ft.cursor
		ft.dictadd ft.dictdel ft.dictdump ft.dropindex ft.explain ft.explaincli ft.hybrid ft.info
		ft.profile ft.search ft.spellcheck ft.syndump ft.synupdate ft.tagvals`, Class: Slow},

	// Transactions.
	{Name: "multi", Class: Stateful, Reads: true, Effect: Multi},
	{Name: "exec", Class: Stateful, Reads: true, Effect: Exec},
	{Name: "discard", Class: Stateful, Reads: true, Effect: Discard},
	{Name: "watch", Class: Stateful, Reads: true, Effect: Watch, Keys: at(1, -1, 1)},
	{Name: "unwatch", Class: Stateful, Reads: true, Effect: Unwatch},

	// The connection.
	{Name: "select", Class: Greeting, Reads: true, Effect: Select, Sets: true},
	{Name: "auth", Class: Stateful, Reads: true, Effect: Auth, Sets: true},
	{Name: "hello", Class: Greeting, Reads: true, Effect: Hello, Sets: true},
	{Name: "reset", Class: Stateful, Reads: true, Effect: Reset, Sets: true},
	{Name: "quit", Class: Stateful, Reads: true, Effect: Quit},
	// Redis closes: a browser was made to send it
	{Name: "post host:", Class: Stateful, Effect: Closes},
	{Name: "echo ping", Class: Shared, Reads: true},
	{Name: "readonly readwrite asking", Class: Stateful, Effect: UnknownState},
	{Name: "wait", Class: Stateful, Reads: true, Nodes: Masters, Join: Min},
	{Name: "waitaof", Class: Stateful, Reads: true, Nodes: Masters, Join: MinEach},
	{Name: "client", Class: Stateful, Effect: StickyState},
	{Name: "client|no-evict client|no-touch client|import-source", Class: Stateful,
		Effect: StickyState, Sets: true},
	{Name: "client|capa", Class: Stateful, Effect: StickyState, Sets: true, Stays: true},
	{Name: "client|setname", Class: Greeting, Reads: true, Effect: SetName, Sets: true},
	{Name: "client|setinfo", Class: Stateful, Reads: true},
	{Name: "client|setinfo|lib-name", Class: Greeting, Reads: true, Effect: SetLibName, Sets: true,
		Stays: true},
	{Name: "client|setinfo|lib-ver", Class: Greeting, Reads: true, Effect: SetLibVer, Sets: true,
		Stays: true},
	// Libraries ask for it, and where there is such a thing, the proxy itself follows the server.
	{Name: "client|maint_notifications", Class: Greeting, Effect: StickyState},
	{Name: "client|tracking", Class: Stateful, Effect: StickyState, Sets: true},
	{Name: "client|reply", Class: Stateful, Effect: StickyState},
	{Name: "client|tracking|on", Class: Stateful, Effect: TrackingOn, Sets: true},
	{Name: "client|tracking|off", Class: Stateful, Effect: TrackingOff, Sets: true},
	{Name: "client|reply|on", Class: Stateful, Effect: ReplyOn},
	{Name: "client|reply|off", Class: Stateful, Effect: ReplyOff},
	{Name: "client|reply|skip", Class: Stateful, Effect: ReplySkip},
	{Name: "client|help", Class: Shared, Reads: true},
	{Name: "client|id client|info", Class: Stateful, Reads: true, Effect: KnownID},
	{Name: "client|list", Class: Stateful, Reads: true, Effect: KnownID, Nodes: Masters},
	{Name: "client|caching client|getname client|getredir client|trackinginfo", Class: Stateful, Reads: true},
	{Name: "client|kill client|unblock", Class: Stateful, Nodes: AnyMaster, Join: Max},
	{Name: "client|pause", Class: Stateful, Nodes: Masters}, // its effect is by arguments
	{Name: "client|unpause", Class: Stateful, Effect: Unpauses, Nodes: Masters},

	// Channels.
	{Name: "subscribe", Class: Stateful, Effect: Subscribe},
	{Name: "psubscribe", Class: Stateful, Effect: PSubscribe},
	{Name: "ssubscribe", Class: Stateful, Effect: SSubscribe, Keys: at(1, -1, 1)},
	{Name: "unsubscribe", Class: Stateful, Effect: Unsubscribe},
	{Name: "punsubscribe", Class: Stateful, Effect: PUnsubscribe},
	{Name: "sunsubscribe", Class: Stateful, Effect: SUnsubscribe, Keys: at(1, -1, 1)},
	{Name: "publish pubsub", Class: Shared},
	{Name: "pubsub|channels pubsub|numpat pubsub|numsub", Class: Shared},
	{Name: "pubsub|shardchannels", Class: Shared, Nodes: Masters, Join: Distinct},
	{Name: "pubsub|shardnumsub", Class: Shared, Nodes: Masters, Join: SumEach},

	// The server.
	{Name: "command config acl slowlog latency cluster", Class: Shared},
	{Name: "info role time lolwut", Class: Shared, Reads: true},
	{Name: "failover replicaof slaveof", Class: Shared},
	{Name: "save bgsave bgrewriteaof memory|purge slowlog|reset config|resetstat", Class: Shared,
		Nodes: Masters},
	{Name: "lastsave", Class: Shared, Nodes: Masters, Join: Min},
	{Name: "slowlog|get", Class: Shared, Nodes: Masters, Join: Elements},
	{Name: "slowlog|len latency|reset", Class: Shared, Nodes: Masters, Join: Sum},
	// A replica can become a master, and isn't told these by its master.
	{Name: "acl|setuser acl|deluser acl|load acl|save config|set config|rewrite", Class: Shared,
		Nodes: All},
	{Name: "acl|log", Class: Shared, Nodes: Masters, Join: Elements},
	{Name: "module", Class: Stateful, Effect: StickyState}, // nobody knows what a module does
	{Name: "module|load module|loadex module|unload", Class: Stateful, Effect: StickyState,
		Nodes: All},
	{Name: "commandlog", Class: Shared},
	{Name: "commandlog|get", Class: Shared, Nodes: Masters, Join: Elements},
	{Name: "commandlog|len", Class: Shared, Nodes: Masters, Join: Sum},
	{Name: "commandlog|reset", Class: Shared, Nodes: Masters},
	{Name: "hotkeys", Class: Shared},
	{Name: "hotkeys|start hotkeys|stop hotkeys|get hotkeys|reset", Class: Shared,
		Refused: aboutOneNode},
	{Name: "cluster|countkeysinslot cluster|getkeysinslot cluster|flushslot", Class: Shared},
	{Name: "cluster|getslotmigrations cluster|slot-stats", Class: Shared, Nodes: Masters,
		Join: Elements},
	{Name: "cluster|slot-stats|orderby", Class: Shared, Refused: "each node orders its own slots"},
	{Name: `cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|delslots
		cluster|delslotsrange cluster|failover cluster|flushslots cluster|forget cluster|meet
		cluster|replicate cluster|reset cluster|saveconfig cluster|set-config-epoch
		cluster|migrateslots cluster|cancelslotmigrations cluster|migration`,
		Class: Shared, Refused: aboutOneNode},
	// Valkey 8 waits for its replicas.
	{Name: "cluster|setslot", Class: Occupying, Refused: aboutOneNode},
	// between nodes: some forms get no reply, and others a stream
	{Name: "cluster|syncslots", Class: Stateful, Effect: Replicate, Refused: aboutOneNode},
	{Name: "monitor", Class: Stateful, Effect: Monitor, Nodes: Masters},
	{Name: "sync psync", Class: Stateful, Effect: Replicate, Refused: oneNodesData},
	{Name: "replconf", Class: Stateful, Effect: StickyState}, // by arguments
	{Name: "shutdown", Class: Stateful, Effect: Closes, Refused: endsOneNode},
	{Name: "debug", Effect: StickyState},
	{Name: "debug|object", Effect: StickyState, Keys: at(2, 2, 1)},
	{Name: "debug|restart debug|segfault", Effect: StickyState, Refused: endsOneNode},

	// lockproxy's own.
	{Name: "lock lockall unlock unlockall relock once done lockinfo lockscan locktop locklog", Class: Lock},
	{Name: "fence", Class: Stateful},                                // a transaction
	{Name: "lockproxy.wait lockproxy.unblock", Effect: StickyState}, // see package cluster
}
