package cluster_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

// What a single Redis does with locks, a cluster does too, whatever their names are.
func TestClusterLocks(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	keys := []string{"job", "{a}b", "a{b}c", "a{b", "a}b", "a{}b", "a{}{b}", "}{", "{", "}", "{}",
		"b{a}", "{a}{b}", "}{a}", "{{}}", "a\x00b", "\xff\xfe", "{\r\n}x", ""}
	for i := range 30 {
		keys = append(keys, fmt.Sprint("job", i))
	}
	tokens := map[string]string{}
	for _, key := range keys {
		token := strings.Trim(a.DoWords("LOCK", key, "600", "OWNER", "me"), ":\r\n")
		tokens[key] = token
		for _, step := range []struct{ got, want string }{
			{b.DoWords("LOCK", key, "600"), "$-1\r\n"},
			{b.DoWords("LOCK", key, "600", "OWNER", "me"), ":" + token + "\r\n"},
			{b.DoWords("RELOCK", key, token, "600"), ":1\r\n"},
			{b.DoWords("FENCE", key, token, "EXISTS", key), ":1\r\n"},
			{b.DoWords("FENCE", key, token+"0", "EXISTS", key),
				fmt.Sprintf("-FENCED token %s0 does not hold the lock '%s' (any more): the "+
					"command was not run\r\n", token, oneLine(key))},
			{b.DoWords("UNLOCK", key, token+"0"), ":0\r\n"},
		} {
			if step.got != step.want {
				t.Errorf("%q: got %q, want %q", key, step.got, step.want)
			}
		}
		if got := b.DoWords("LOCKINFO", key); !strings.Contains(got, "$4\r\nheld\r\n") ||
			!strings.Contains(got, ":"+token+"\r\n") {
			t.Errorf("LOCKINFO %q: %q", key, got)
		}
	}
	if found, want := scanLocks(t, a), slices.Sorted(slices.Values(keys)); !slices.Equal(found,
		want) {
		t.Errorf("LOCKSCAN finds %q, not %q", found, want)
	}
	for _, key := range keys {
		if got := b.DoWords("UNLOCK", key, tokens[key]); got != ":1\r\n" {
			t.Errorf("UNLOCK %q: %q", key, got)
		}
	}
	if found := scanLocks(t, a); len(found) > 0 {
		t.Errorf("LOCKSCAN finds %q behind their release", found)
	}
	spread := 0
	for _, node := range cluster.Nodes {
		if node.Ask("DBSIZE") != ":0" {
			spread++
		}
	}
	if spread != 3 {
		t.Errorf("the locks are in %d of 3 nodes", spread)
	}
}

// oneLine shows a name within an error.
func oneLine(name string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(name) }

// scanLocks returns all that LOCKSCAN finds, in order.
func scanLocks(t *testing.T, c *proxytest.Conn) (keys []string) {
	t.Helper()
	for cursor := "0"; ; {
		v, err := wire.Parse(c.DoWords("LOCKSCAN", cursor, "COUNT", "20"))
		if err != nil || len(v.Elems) != 2 {
			t.Fatalf("LOCKSCAN: %v, %v", v, err)
		}
		for _, key := range v.Elems[1].Elems {
			keys = append(keys, key.Text)
		}
		if cursor = v.Elems[0].Text; cursor == "0" {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
	}
}

// A fenced command runs where the lock is, or not at all.
func TestClusterFence(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("{job} 600")
	fence := fmt.Sprintf("FENCE {job} %d ", token)
	c.Expect(fence+"SET {job}:state busy", "+OK\r\n")
	c.Expect(fence+"INCR {job}:state", "-ERR value is not an integer or out of range\r\n")
	for i := range 20 { // some on the same node, most not
		c.Expect(fmt.Sprintf("%sSET other%d x", fence, i),
			"-CROSSSLOT Keys in request don't hash to the same slot\r\n")
		c.Expect(fmt.Sprintf("EXISTS other%d", i), ":0\r\n")
	}
	c.Expect(fence+"MGET {job}:state other",
		"-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	c.Expect(fence+"GET {job}:state", "$4\r\nbusy\r\n")
	c.Expect("GET other", "$-1\r\n") // no transaction is left open

	// The slot moves, and nothing of that lets a token through that doesn't hold the lock any more.
	slot := cluster.Slot("{job}")
	from := cluster.MasterOf(slot)
	to := proxytest.AnotherMaster(cluster, from)
	for i := range 6 {
		cluster.MigrateSlots(from, to, slot)
		from, to = to, from
		c.Expect(fence+fmt.Sprintf("SET {job}:state %d", i), "+OK\r\n")
	}
	c.Expect(proxytest.Unlock("{job}", token), ":1\r\n")
	cluster.MigrateSlots(from, to, slot)
	c.Expect(fence+"SET {job}:state stale", "-FENCED …")
	c.Expect("GET {job}:state", "$1\r\n5\r\n")
}

// While a slot is on its way, a key that is not there yet can't be written: FENCE tries for a
// while, and then says so.
func TestClusterFenceWhileSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	c := proxytest.Dial(t, proxytest.Start(t, cluster.URL(), nil).Addr)
	token := c.Lock("{job} 600")
	shared := proxytest.Token(t, c.Do("LOCK {job}:shared 600 SHARED"))
	slot := cluster.Slot("{job}")
	from := cluster.MasterOf(slot)
	m := cluster.BeginMigration(from, proxytest.AnotherMaster(cluster, from), slot)
	c.Expect(fmt.Sprintf("FENCE {job} %d SET {job}:new 1", token), "-TRYAGAIN …")
	c.Expect(fmt.Sprintf("FENCE {job}:shared %d SET {job}:new 1", shared), "-TRYAGAIN …")
	c.Expect("EXISTS {job}:new", ":0\r\n")
	m.MoveKeys()
	m.Finish()
	c.Expect(fmt.Sprintf("FENCE {job} %d SET {job}:new 1", token), "+OK\r\n")
	c.Expect(fmt.Sprintf("FENCE {job}:shared %d SET {job}:new 2", shared), "+OK\r\n")
}

// --min-replicas counts those of the node that has the lock, and no others.
func TestClusterMinReplicas(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	p := proxytest.Start(t, cluster.URL(), proxytest.WithSlowReplicas(1))
	hasty := proxytest.Dial(t, proxytest.Start(t, cluster.URL(), proxytest.WithReplicas(1)).Addr)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("job", i))
	}
	for _, key := range keys {
		token := a.Lock(key + " 600 SESSION")
		master := cluster.MasterOf(cluster.Slot(key))
		slot := strconv.Itoa(cluster.Slot(key))
		if got := cluster.ReplicaOf(master).Ask("CLUSTER", "COUNTKEYSINSLOT", slot); got != ":2" {
			t.Fatalf("a token was given out for what the replica doesn't have: %s keys", got)
		}
		b.Send("LOCK " + key + " 600 WAIT 600")
		proxytest.AwaitWaiters(t, p, key, 1)
		a.Expect(proxytest.Unlock(key, token), ":1\r\n")
		b.Expect(proxytest.Unlock(key, proxytest.Token(t, b.Reply())), ":1\r\n")
	}

	master := cluster.MasterOf(cluster.Slot(keys[0]))
	replica := cluster.ReplicaOf(master)
	replica.Pause()
	hasty.Expect("LOCK "+keys[0]+" 600", "-NOREPLICAS 0 of 1 replicas acknowledged it within "+
		"300ms: the lock was not taken, try again\r\n")
	a.Expect("LOCKINFO "+keys[0], "$-1\r\n")
	for _, key := range keys {
		if cluster.MasterOf(cluster.Slot(key)) != master {
			a.Expect(proxytest.Unlock(key, a.Lock(key+" 600")), ":1\r\n")
		}
	}
	replica.Resume()
	replica.WaitInSync()
	b.Lock(keys[0] + " 600") // they are given out again
}

// What an operator sees of the locks of all nodes, some of which have never seen the script.
func TestClusterSurvey(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprint("job", i))
		c.Lock(keys[i] + " 600")
	}
	c.Do("LOCKINFO " + keys[0]) // now one node knows the script
	held, err := p.Server.Locks().Inspect(proxytest.Ctx, names.Identity{}, keys)
	if err != nil || len(held) != len(keys) {
		t.Errorf("%d of %d locks are found: %v", len(held), len(keys), err)
	}
	for cursor, found := uint64(0), 0; ; {
		next, names, err := p.Server.Locks().Scan(proxytest.Ctx, names.Identity{}, cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		found += len(names)
		if cursor = next; cursor == 0 {
			if found != len(keys) {
				t.Errorf("a scan for locks finds %d, not %d", found, len(keys))
			}
			break
		}
	}
}

// With --require-fsync a lock must be on the disk of the node that has it.
func TestClusterRequireFsyncLock(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0, "--appendonly", "yes", "--appendfsync", "always")
	p := proxytest.Start(t, cluster.URL(), proxytest.WithFsync(0, 10*time.Second))
	hasty := proxytest.Start(t, cluster.URL(), proxytest.WithFsync(0, 100*time.Millisecond))
	a, b, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr), proxytest.Dial(t, hasty.Addr)
	if !cluster.Nodes[0].KnowsWaitaof() {
		a.Expect("LOCK job 600", "-NOREPLICAS the upstream does not tell whether it is on disk "+
			"(ERR unknown command 'WAITAOF'…")
		a.Expect("LOCKINFO job", "$-1\r\n")
		return
	}
	slow := cluster.MasterOf(cluster.Slot("job0"))
	for i := range 10 {
		key := fmt.Sprint("job", i)
		token := a.Lock(key + " 600 SESSION")
		b.Send("LOCK " + key + " 600 WAIT 600")
		proxytest.AwaitWaiters(t, p, key, 1)
		a.Expect(proxytest.Unlock(key, token), ":1\r\n")
		b.Expect(proxytest.Unlock(key, proxytest.Token(t, b.Reply())), ":1\r\n")
	}
	slow.Ask("CONFIG", "SET", "appendfsync", "no")
	for i := range 10 {
		key := fmt.Sprint("job", i)
		if cluster.MasterOf(cluster.Slot(key)) != slow {
			a.Expect(proxytest.Unlock(key, a.Lock(key+" 600")), ":1\r\n")
			continue
		}
		c.Expect("LOCK "+key+" 600", "-NOREPLICAS the upstream did not have it on disk within "+
			"100ms: the lock was not taken, try again\r\n")
		c.Expect("LOCKINFO "+key, "$-1\r\n")
	}
}

// WAIT and WAITAOF ask all masters, and count the least of them. Where they can't count what went
// by shared connections, they say so.
func TestClusterWaitCoversWritesByLanes(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1, "--appendonly", "yes", "--appendfsync", "always")
	p := proxytest.Start(t, cluster.URL(), nil)
	c := proxytest.SharedClient(t, p.Addr)
	master := cluster.MasterOf(cluster.Slot("a"))
	replica := cluster.ReplicaOf(master)
	waits := map[string][2]string{ // when all have it, and when not
		"WAIT 1 ": {":1\r\n", ":0\r\n"}, "WAITAOF 1 0 ": {"*2\r\n:1\r\n…", "*2\r\n:0\r\n…"}}
	if p.Shares && master.KnowsWaitaof() {
		const refused = "-ERR lockproxy can do nothing to have the upstream count what this client…"
		waits = map[string][2]string{"WAIT 1 ": {refused, refused},
			"WAITAOF 1 0 ": {refused, refused}}
	} else if !master.KnowsWaitaof() {
		const refused = "-ERR unknown command 'WAITAOF'…"
		waits["WAITAOF 1 0 "] = [2]string{refused, refused}
	}
	for i, within := range []string{"60000", "50"} {
		for wait, want := range waits {
			c.Expect("SET a "+within, "+OK\r\n")
			got := c.Do(wait + within)
			if text, _ := strings.CutSuffix(want[i], "…"); !strings.HasPrefix(got, text) &&
				!strings.HasPrefix(got, "-UPSTREAM ") { // the node that was asked for its version
				t.Errorf("%s: %q, want %q", wait, got, want[i])
			}
		}
		replica.Pause()
		master.Ask("CONFIG", "SET", "appendfsync", "no")
	}
	c.Expect("GET a", "$2\r\n50\r\n")
}

// The locks of a client that is disconnected are released soon, though another master owes it an
// answer and is silent.
func TestClientsLocksNextToASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	p, q := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
	silent := cluster.MasterOf(cluster.Slot("used"))
	key := "job"
	for n := 0; cluster.MasterOf(cluster.Slot(key)) == silent; n++ {
		key = fmt.Sprintf("job%d", n)
	}
	next.Expect("EXISTS "+key, ":0\r\n")
	holder.Expect("CLIENT SETNAME holder", "+OK\r\n") // by its home, at all nodes
	holder.Lock(key + " 600 SESSION")
	silent.Pause()
	t.Cleanup(silent.Resume)
	next.Send("LOCK " + key + " 600 WAIT 0")
	holder.Send("GET used")
	before := connections(p)
	holder.Close()
	proxytest.Token(t, next.Reply())
	if connections(p) != before {
		t.Error("the lock was released when its holder was owed nothing any more, and no sooner")
	}
}

// connections is how many connections, or shares in one, the clients of a proxy have.
func connections(p *proxytest.Proxy) int {
	of := p.Server.Stats().Connections
	return of.Shared + of.Homes
}
