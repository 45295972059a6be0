package cluster_test

import (
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/wire"
)

func TestLargeValuesStream(t *testing.T) {
	t.Parallel()
	k := open(t, six(t))
	value := strings.Repeat("v", 8<<20)
	k.send("SET large " + value)
	k.replies(ok)
	if got := k.ask("GET large"); len(got) != len(value)+len("$8388608\r\n\r\n") {
		t.Errorf("GET: %d bytes", len(got))
	}
	k.send("MSET l1 "+value+" l2 "+value, "MGET l1 l2", "DEL l1 l2 large")
	k.replies(ok)
	if got := k.reply(); len(got) != 2*(len(value)+len("$8388608\r\n\r\n"))+len("*2\r\n") {
		t.Errorf("MGET: %d bytes", len(got))
	}
	k.replies(":3\r\n")
}

// large is a value that makes a request longer than what is kept to be sent again.
var large = strings.Repeat("v", 2<<20)

// sendLarge writes a request of which the end comes later.
func (c *client) sendLarge(args ...string) {
	c.t.Helper()
	raw := wire.Append(nil, args...)
	for _, b := range [][]byte{raw[:len(raw)-1], raw[len(raw)-1:]} {
		if _, err := c.nc.Write(b); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A large request without keys goes where a small one goes.
func TestLargeRequestWithoutKeys(t *testing.T) {
	t.Parallel()
	k, subscriber := open(t, six(t)), open(t, six(t))
	k.sendLarge("ECHO", large)
	if got := k.reply(); len(got) != len(large)+len("$2097152\r\n\r\n") {
		t.Errorf("ECHO: %d bytes", len(got))
	}
	subscriber.send("SUBSCRIBE large")
	subscriber.reply()
	k.sendLarge("PUBLISH", "large", large)
	k.replies(":1\r\n")
}

// A large request is queued in a transaction, whichever node has its key.
func TestLargeRequestInTransaction(t *testing.T) {
	t.Parallel()
	c := six(t)
	for i := range 3 {
		k, key := open(t, c), keyAt(t, c, i, "multi")
		k.expect("MULTI", ok)
		k.sendLarge("SET", key, large)
		k.send("EXEC", "DEL "+key)
		k.replies(queued, "*1\r\n"+ok, ":1\r\n")
	}
}

// A large request is refused in protocol 2's subscribe mode, as a small one is.
func TestLargeRequestWhileSubscribed(t *testing.T) {
	t.Parallel()
	c := six(t)
	for i := range 3 {
		k := open(t, c)
		k.send("SUBSCRIBE x")
		k.sendLarge("SET", keyAt(t, c, i, "large"), large)
		k.reply()
		if got := k.reply(); !strings.HasPrefix(got, "-ERR Can't execute 'set'") {
			t.Errorf("SET: %q", got)
		}
	}
}

// CLIENT CACHING does not get into a large request behind it.
func TestLargeRequestBehindCaching(t *testing.T) {
	t.Parallel()
	c := six(t)
	for i := range 3 {
		k, key := open(t, c), keyAt(t, c, i, "caching")
		k.send("HELLO 3", "CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES")
		k.reply()
		k.replies(ok, ok)
		k.sendLarge("SET", key, large)
		k.send("STRLEN "+key, "DEL "+key)
		k.replies(ok, ":"+strconv.Itoa(len(large))+"\r\n", ":1\r\n")
	}
}

// Many clients with large unfinished requests take no more memory than a bound for all.
func TestUnfinishedRequestsOfMany(t *testing.T) {
	t.Parallel()
	cl := cluster.New(six(t).Addrs())
	half := []byte("*2\r\n$4\r\nECHO\r\n$67000000\r\n" + strings.Repeat("v", 60<<20))
	var clients []*client
	for {
		k := openAt(t, cl)
		if _, err := k.nc.Write(half); err != nil {
			break
		}
		if clients = append(clients, k); len(clients) == 6 {
			t.Fatal("there is no bound")
		}
	}
	clients[0].nc.Close()
	if _, err := openAt(t, cl).nc.Write(half); err != nil {
		t.Errorf("there is no room after a client has left: %v", err)
	}
}
