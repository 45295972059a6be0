package lockproxy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
)

// do2 sends one command whose words may be any bytes, and returns its raw reply.
func (c *rawConn) do2(words ...string) string {
	c.t.Helper()
	c.write(string(resp.AppendCommand(nil, words...)))
	return c.reply()
}

// What a single Redis does with locks, a cluster does too, whatever their names are.
func TestClusterLocks(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := startProxy(t, cluster.URL(), nil)
	a, b := dial(t, p.addr), dial(t, p.addr)
	keys := []string{"job", "{a}b", "a{b}c", "a{b", "a}b", "a{}b", "a{}{b}", "}{", "{", "}", "{}", "b{a}", "{a}{b}", "}{a}", "{{}}", "a\x00b", "\xff\xfe", "{\r\n}x", ""}
	for i := range 30 {
		keys = append(keys, fmt.Sprint("job", i))
	}
	tokens := map[string]string{}
	for _, key := range keys {
		token := strings.Trim(a.do2("LOCK", key, "60", "OWNER", "me"), ":\r\n")
		tokens[key] = token
		for _, step := range []struct{ got, want string }{
			{b.do2("LOCK", key, "60"), "$-1\r\n"},
			{b.do2("LOCK", key, "60", "OWNER", "me"), ":" + token + "\r\n"},
			{b.do2("RELOCK", key, token, "60"), ":1\r\n"},
			{b.do2("FENCE", key, token, "EXISTS", key), ":1\r\n"},
			{b.do2("FENCE", key, token+"0", "EXISTS", key), fmt.Sprintf("-FENCED token %s0 does not hold the lock '%s' (any more): the command was not run\r\n", token, oneLine(key))},
			{b.do2("UNLOCK", key, token+"0"), ":0\r\n"},
		} {
			if step.got != step.want {
				t.Errorf("%q: got %q, want %q", key, step.got, step.want)
			}
		}
		if got := b.do2("LOCKINFO", key); !strings.Contains(got, "$4\r\nheld\r\n") || !strings.Contains(got, ":"+token+"\r\n") {
			t.Errorf("LOCKINFO %q: %q", key, got)
		}
	}
	if found, want := scanLocks(t, a), slices.Sorted(slices.Values(keys)); !slices.Equal(found, want) {
		t.Errorf("LOCKSCAN finds %q, not %q", found, want)
	}
	for _, key := range keys {
		if got := b.do2("UNLOCK", key, tokens[key]); got != ":1\r\n" {
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

// oneLine is how a name is shown within an error.
func oneLine(name string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(name) }

// scanLocks is all that LOCKSCAN finds, in order.
func scanLocks(t *testing.T, c *rawConn) (keys []string) {
	t.Helper()
	for cursor := "0"; ; {
		v, err := resp.ParseValue([]byte(c.do2("LOCKSCAN", cursor, "COUNT", "20")))
		if err != nil || len(v.Elems) != 2 {
			t.Fatalf("LOCKSCAN: %v, %v", v, err)
		}
		for _, key := range v.Elems[1].Elems {
			keys = append(keys, string(key.Text))
		}
		if cursor = string(v.Elems[0].Text); cursor == "0" {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
	}
}

// A fenced command runs where the lock is, or not at all.
func TestClusterFence(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := startProxy(t, cluster.URL(), nil)
	c := dial(t, p.addr)
	token := c.lock("{job} 60")
	fence := fmt.Sprintf("FENCE {job} %d ", token)
	c.expect(fence+"SET {job}:state busy", "+OK\r\n")
	c.expect(fence+"INCR {job}:state", "-ERR value is not an integer or out of range\r\n")
	for i := range 20 { // some on the same node, most not
		c.expect(fmt.Sprintf("%sSET other%d x", fence, i), "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
		c.expect(fmt.Sprintf("EXISTS other%d", i), ":0\r\n")
	}
	c.expect(fence+"MGET {job}:state other", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	c.expect(fence+"GET {job}:state", "$4\r\nbusy\r\n")
	c.expect("GET other", "$-1\r\n") // no transaction is left open

	// The slot moves, and nothing of that lets a token through that doesn't hold the lock any more.
	slot := cluster.Slot("{job}")
	from := cluster.MasterOf(slot)
	to := anotherMaster(cluster, from)
	for i := range 6 {
		cluster.MigrateSlots(from, to, slot)
		from, to = to, from
		c.expect(fence+fmt.Sprintf("SET {job}:state %d", i), "+OK\r\n")
	}
	c.expect(unlock("{job}", token), ":1\r\n")
	cluster.MigrateSlots(from, to, slot)
	c.expect(fence+"SET {job}:state stale", "-FENCED …")
	c.expect("GET {job}:state", "$1\r\n5\r\n")
}

// --min-replicas counts those of the node that has the lock, and no others.
func TestClusterMinReplicas(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	p := startProxy(t, cluster.URL(), withReplicas(1))
	a, b := dial(t, p.addr), dial(t, p.addr)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("job", i))
	}
	for _, key := range keys {
		token := a.lock(key + " 10 SESSION")
		master := cluster.MasterOf(cluster.Slot(key))
		slot := strconv.Itoa(cluster.Slot(key))
		if got := cluster.ReplicaOf(master).Ask("CLUSTER", "COUNTKEYSINSLOT", slot); got != ":2" {
			t.Fatalf("a token was given out for what the replica doesn't have: %s keys", got)
		}
		b.send("LOCK " + key + " 10 WAIT 5")
		attackWaits(t, p, key, 1)
		a.expect(unlock(key, token), ":1\r\n")
		b.expect(unlock(key, attackToken(t, b.reply())), ":1\r\n")
	}

	master := cluster.MasterOf(cluster.Slot(keys[0]))
	replica := cluster.ReplicaOf(master)
	replica.Pause()
	a.expect("LOCK "+keys[0]+" 10", "-NOREPLICAS 0 of 1 replicas acknowledged it within 300ms: the lock was not taken, try again\r\n")
	a.expect("LOCKINFO "+keys[0], "$-1\r\n")
	for _, key := range keys {
		if cluster.MasterOf(cluster.Slot(key)) != master {
			a.expect(unlock(key, a.lock(key+" 10")), ":1\r\n")
		}
	}
	replica.Resume()
	replica.WaitInSync()
	eventually(t, 5*time.Second, "locks are given out again", func() bool { return !strings.HasPrefix(b.do("LOCK "+keys[0]+" 10"), "-") })
}

// What an operator sees of the locks of all nodes, some of which have never seen the script.
func TestClusterSurvey(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := startProxy(t, cluster.URL(), nil)
	c := dial(t, p.addr)
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprint("job", i))
		c.lock(keys[i] + " 60")
	}
	c.do("LOCKINFO " + keys[0]) // now one node knows the script
	held, err := p.server.Locks().Look(ctx, lockcmd.Identity{}, keys)
	if err != nil || len(held) != len(keys) {
		t.Errorf("%d of %d locks are found: %v", len(held), len(keys), err)
	}
	for cursor, found := uint64(0), 0; ; {
		next, names, err := p.server.Locks().Find(ctx, lockcmd.Identity{}, cursor, 10)
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

func anotherMaster(c *testredis.Cluster, but *testredis.Server) *testredis.Server {
	for _, s := range c.Nodes {
		if s != but && s.Role() == "master" {
			return s
		}
	}
	return nil
}
