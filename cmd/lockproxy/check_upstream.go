package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/upstream"
	"lockproxy/lockcmd/rights"
)

// checkUpstream asks the upstream what it is and how it is set up, as the user in --upstream.
func (c *checkCommand) checkUpstream(ctx context.Context, found *findings) {
	if c.isItself(c.Listen) {
		found.add(levelFail, "upstream", "%v", errItself)
		return
	}
	client := c.upstream.Client(c.upstream.Initial)
	defer client.Close()
	begun := time.Now()
	info, err := c.upstream.Diagnose(ctx)
	switch {
	case err != nil:
		found.add(levelFail, "upstream", "%v", err)
		return
	case redis.HasErrorPrefix(client.Ping(ctx).Err(), "NOAUTH"):
		found.add(levelPass, "upstream", "%v answers, and wants clients to log in", c.upstream)
		found.add(levelWarn, "rights", "put the login of a user that locks into --upstream to "+
			"check its rights and the server's settings")
		return
	}
	found.add(levelPass, "upstream", "%v answers, first after %v", c.upstream,
		time.Since(begun).Round(100*time.Microsecond))
	c.checkClock(ctx, client, found)
	c.checkListen(found)
	c.checkRights(ctx, client, found)

	if info == nil {
		found.add(levelWarn, "info", "cannot read the version and settings: allow this user "+
			"+info, or check as another user")
		return
	}
	checkVersion(info, found)
	c.checkRole(found)
	checkEviction(info, found)
	c.checkPersistence(ctx, client, info, found)
	c.checkReplicas(info, found)
}

// checkRights tells what the user in --upstream may not do, and what the server cannot do.
func (c *checkCommand) checkRights(ctx context.Context, client *redis.Client, found *findings) {
	user := c.upstream.Initial.User
	tried, err := rights.Try(ctx, client, rights.Purpose{User: user, Lock: c.Lock,
		Cluster: c.upstream.IsCluster(), Replicas: c.MinReplicas > 0, Fsync: c.RequireFsync,
		Links: c.Admin != ""})
	if err != nil {
		found.add(levelFail, "rights", "%v", err)
		return
	}
	for _, lack := range tried.Lacks {
		level := levelWarn
		if lack.Fails {
			level = levelFail
		}
		found.add(level, lack.About, "%s", lack.Text)
	}
	switch user = cmp.Or(user, "default"); {
	case tried.Confined && c.Lock == "":
		found.add(levelPass, "rights", "user %s may use only some keys: name a lock with --lock "+
			"to check whether it is one of them", user)
	case len(tried.Lacks) == 0:
		found.add(levelPass, "rights", "user %s may do all that the lock commands need", user)
	}
}

// checkListen checks whether other machines can use an upstream that has answered without a login
// of the client.
func (c *checkCommand) checkListen(found *findings) {
	switch {
	case !c.isPublic() || c.TLSClientCA != "":
	case c.upstream.Initial.LoggedIn:
		found.add(levelWarn, "listen", "%s is open to other machines, and every client acts as "+
			"the user in --upstream without a login: leave the credentials out, or let in only "+
			"clients with a certificate by --tls-client-ca", c.Listen)
	default:
		found.add(levelWarn, "listen", "%s is open to other machines, and the upstream requires "+
			"no password: every client that can connect may run any command; set requirepass "+
			"there, or let in only clients with a certificate by --tls-client-ca", c.Listen)
	}
}

// oldestRedis is the oldest release that lockproxy is tested with.
const oldestRedis = 6

func checkVersion(info map[string]string, found *findings) {
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestRedis {
		found.add(levelWarn, "version", "%q: lockproxy is tested only with Redis %d and later",
			version, oldestRedis)
		return
	}
	found.add(levelPass, "version", "Redis %s, %s", version, upstream.Mode(info))
}

// checkRole tells what a server is that can be written to.
func (c *checkCommand) checkRole(found *findings) {
	switch masters, whole := c.upstream.ClusterMasters(); {
	case c.upstream.IsCluster() && !whole:
		found.add(levelFail, "cluster", "some slots have no master: keys in these slots "+
			"cannot be used")
	case whole:
		found.add(levelPass, "cluster", "%d masters serve all slots; lines about a single "+
			"server describe one of them", masters)
	case c.upstream.Moves():
		found.add(levelPass, "role", "master, according to its Sentinels")
	default:
		found.add(levelPass, "role", "master")
	}
}

// checkEviction checks whether full memory can cost locks.
func checkEviction(info map[string]string, found *findings) {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	switch {
	case policy == "noeviction":
		found.add(levelPass, "eviction", "maxmemory-policy is noeviction: no lock is dropped "+
			"when memory is full")
	case limit == "0":
		found.add(levelWarn, "eviction", "maxmemory-policy is %s: locks would be dropped if "+
			"there were a maxmemory; set noeviction, or keep locks in a Redis of their own", policy)
	default:
		found.add(levelFail, "eviction", "maxmemory-policy is %s: locks may be dropped when "+
			"memory is full, and be held twice; set noeviction, or keep locks in a Redis of "+
			"their own", policy)
	}
}

// checkPersistence tells what a crash of the upstream would cost.
func (c *checkCommand) checkPersistence(
	ctx context.Context, client *redis.Client, info map[string]string, found *findings,
) {
	fsync := "unknown"
	if got, err := client.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		fsync = got["appendfsync"]
	}
	save, err := client.ConfigGet(ctx, "save").Result()
	snapshots := err == nil && save["save"] != ""
	switch {
	case info["aof_enabled"] == "1" && fsync == "always":
		found.add(levelPass, "persistence", "appendonly with appendfsync always: a crash loses "+
			"no lock")
	case info["aof_enabled"] == "1" && c.RequireFsync:
		c.checkFsync(fsync, info["server_name"], found)
	case info["aof_enabled"] == "1":
		found.add(levelWarn, "persistence", "appendonly with appendfsync %s: a crash of its "+
			"machine may lose the locks of the last second; always loses none", fsync)
	case err != nil:
		found.add(levelWarn, "persistence", "no appendonly: a crash loses locks; the settings of "+
			"snapshots cannot be read (%v)", err)
	case snapshots:
		found.add(levelWarn, "persistence", "snapshots only (save %s): a crash loses the locks "+
			"since the last snapshot; set appendonly yes", save["save"])
	default:
		found.add(levelWarn, "persistence", "none: a restart loses all locks, and another client "+
			"may then take a lock whose holder still works; set appendonly yes")
	}
}

// fsyncWithin is how long a write can wait for the disk with appendfsync everysec: for the fsync of
// the next second, and for one that is running.
const fsyncWithin = 2 * time.Second

// checkFsync checks whether --require-fsync works with an appendfsync other than always.
func (c *checkCommand) checkFsync(appendfsync, server string, found *findings) {
	switch {
	case appendfsync == "no":
		found.add(levelFail, "persistence", "appendonly with appendfsync no: with "+
			"--require-fsync every LOCK would be answered NOREPLICAS, since Redis does not tell "+
			"when a lock is on disk; set everysec or always")
	case server == "valkey":
		found.add(levelWarn, "persistence", "appendonly with appendfsync %s: Valkey 8.1 answers "+
			"WAITAOF before the lock is on disk, so that --require-fsync doesn't hold; set always",
			appendfsync)
	case c.ReplicaTimeout < fsyncWithin:
		found.add(levelWarn, "persistence", "appendonly with appendfsync %s: a lock can take %v "+
			"to be on disk, and --replica-timeout is %v, so that LOCKs would be answered "+
			"NOREPLICAS; raise it, or set always", appendfsync, fsyncWithin, c.ReplicaTimeout)
	default:
		found.add(levelPass, "persistence", "appendonly with appendfsync %s: a crash loses no "+
			"lock; each is given out once it is on disk, up to %v later", appendfsync, fsyncWithin)
	}
}

// checkReplicas tells what a failover would cost.
func (c *checkCommand) checkReplicas(info map[string]string, found *findings) {
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	switch {
	case c.MinReplicas > replicas:
		found.add(levelFail, "replicas", "%d are connected, and --min-replicas is %d: every LOCK "+
			"would be answered NOREPLICAS", replicas, c.MinReplicas)
	case c.MinReplicas > 0:
		found.add(levelPass, "replicas", "%d are connected; a lock is given out once %d have it",
			replicas, c.MinReplicas)
	case replicas > 0 || c.upstream.Moves():
		found.add(levelWarn, "replicas", "%d are connected: a failover may lose the last locks; "+
			"--min-replicas gives out only those that replicas have", replicas)
	default:
		found.add(levelPass, "replicas", "none are connected: there is no failover that could "+
			"lose locks")
	}
}

// clockTolerance is the difference between clocks that is worth a line.
const clockTolerance = time.Second

// checkClock compares the upstream's clock with this machine's. Locks rest on the upstream's
// alone; plain SETNX clients use theirs.
func (c *checkCommand) checkClock(ctx context.Context, client *redis.Client, found *findings) {
	asked := time.Now()
	there, err := client.Time(ctx).Result()
	if err != nil {
		found.add(levelWarn, "clock", "the upstream's clock cannot be read: %v", err)
		return
	}
	elapsed := time.Since(asked)
	found.addClock(there.Sub(asked.Add(elapsed/2)), elapsed)
}

// addClock judges how far the upstream's clock is ahead, as seen by a question that took a while.
func (f *findings) addClock(ahead, elapsed time.Duration) {
	if ahead.Abs() <= clockTolerance+elapsed {
		f.add(levelPass, "clock", "the upstream's clock and this machine's differ by %v",
			ahead.Abs().Round(time.Millisecond))
		return
	}
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	f.add(levelWarn, "clock", "the upstream's clock is %v %s this machine's: locks do not depend "+
		"on that, but foreign clients and the times shown to people do",
		ahead.Abs().Round(time.Millisecond), way)
}
