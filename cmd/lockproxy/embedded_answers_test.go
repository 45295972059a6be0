package main

import (
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// startWithEmbedded runs a proxy in front of an embedded store until the test ends.
func startWithEmbedded(t *testing.T) *proxytest.Proxy {
	t.Helper()
	store, err := startEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.stop)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return proxytest.StartOn(t, ln, "redis://"+store.store.Addr(), nil)
}

// A browser that is made to send a POST to a proxy with the embedded store gives it no commands.
func TestEmbeddedStoreAndABrowser(t *testing.T) {
	p := startWithEmbedded(t)
	for _, begin := range []string{"POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n"} {
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw(begin + "\r\nSET a 1\r\nLOCK b 300\r\n")
		if got, err := io.ReadAll(c); err != nil {
			t.Errorf("%q: the client stays: %q, %v", begin, got, err)
		}
		proxytest.Dial(t, p.Addr).Expect("EXISTS a b", ":0\r\n")
	}
}

// CLIENT UNBLOCK ends waits for locks with the embedded store, too.
func TestEmbeddedUnblocks(t *testing.T) {
	p := startWithEmbedded(t)
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("k 600")
	id := strings.Trim(waiter.Do("CLIENT ID"), ":\r\n")
	holder.Expect("CLIENT UNBLOCK "+id, ":0\r\n")
	for command, want := range map[string]string{"LOCK k 600 WAIT 60": "$-1\r\n",
		"LOCKALL 600 2 j k WAIT 60": "-UNBLOCKED …"} {
		waiter.Send(command)
		proxytest.AwaitWaiters(t, p, "k", 1)
		how := " ERROR"
		if want == "$-1\r\n" {
			how = " TIMEOUT"
		}
		holder.Expect("CLIENT UNBLOCK "+id+how, ":1\r\n")
		if got := waiter.Reply(); !strings.HasPrefix(got, strings.TrimSuffix(want, "…")) {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	holder.Expect("CLIENT UNBLOCK "+id+" NOW",
		"-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n")
	holder.Expect("CLIENT UNBLOCK me", "-ERR value is not an integer or out of range\r\n")
}

// The embedded store says of itself what client libraries and graphical tools ask for first.
func TestEmbeddedAnswers(t *testing.T) {
	p := startWithEmbedded(t)
	c := proxytest.Dial(t, p.Addr)
	has := func(command string, want ...string) {
		t.Helper()
		got := c.Do(command)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q, without %q", command, got, text)
			}
		}
	}

	has("INFO replication", "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n")
	c.Expect("INFO cluster", "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n")
	c.Expect("INFO nothing", "$0\r\n\r\n")
	has("INFO", "redis_version:8.4.0\r\n", "used_memory:", "connected_clients:", "loading:0\r\n")
	has("INFO server keyspace", "redis_mode:standalone\r\n", "# Keyspace\r\n")
	c.Expect("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")

	c.Expect("CLIENT SETINFO lib-name GLIDE", "+OK\r\n")
	c.Expect("CLIENT SETINFO LIB-VER 2.0", "+OK\r\n")
	c.Expect("CLIENT SETINFO other 2.0", "-ERR Unrecognized option 'other'\r\n")
	c.Expect("CLIENT SETNAME me", "+OK\r\n")
	c.Expect("SELECT 3", "+OK\r\n")
	has("CLIENT INFO", " name=me ", " db=3 ", " resp=2 lib-name=GLIDE lib-ver=2.0\n")
	has("CLIENT LIST", " name=me ", "\nid=")
	if id := c.Do("CLIENT ID"); !strings.HasPrefix(id, ":") || id == ":0\r\n" {
		t.Errorf("CLIENT ID: %q", id)
	}

	c.Expect("CONFIG GET maxmemory-*", "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n")
	c.Expect("CONFIG GET databases nothing", "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n")
	c.Expect("CONFIG GET nothing", "*0\r\n")

	c.Expect("SET n 12", "+OK\r\n")
	c.Expect("SET t some EX 600", "+OK\r\n")
	c.Expect("SET u "+strings.Repeat("x", 45), "+OK\r\n")
	c.Expect("RPUSH l 1", ":1\r\n")
	for key, encoding := range map[string]string{"n": "$3\r\nint\r\n", "t": "$6\r\nembstr\r\n",
		"u": "$3\r\nraw\r\n", "l": "$8\r\nlistpack\r\n", "none": "$-1\r\n"} {
		c.Expect("OBJECT ENCODING "+key, encoding)
	}
	has("INFO keyspace", "db3:keys=4,expires=1,")
	if usage := c.Do("MEMORY USAGE n"); usage != c.Do("MEMORY USAGE n SAMPLES 0") ||
		!strings.HasPrefix(usage, ":") || usage == ":0\r\n" {
		t.Errorf("MEMORY USAGE: %q", usage)
	}

	// Commands in a transaction and in a script stay with miniredis.
	c.Expect("MULTI", "+OK\r\n")
	c.Expect("INFO clients", "+QUEUED\r\n")
	has("EXEC", "*1\r\n$", "connected_clients:")
	has("EVAL return(redis.call('DBSIZE')) 0", ":4\r\n")
	has("EVAL return(redis.pcall('INFO','replication')) 0", "not supported")

	c.Expect("RESET", "+RESET\r\n")
	c.Expect("CLIENT GETNAME", "$-1\r\n")
	c.Expect("DBSIZE", ":0\r\n")
	has("HELLO 3", "proto\r\n:3\r\n")
	has("CLIENT INFO", " name= ", " db=0 ", " resp=3 ")
	c.Expect("CONFIG GET databases", "%1\r\n$9\r\ndatabases\r\n$2\r\n16\r\n")
}

// A client may be asking while the store is closed.
func TestEmbeddedAnswersWhileItCloses(t *testing.T) {
	store, err := startEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	a := newAnswers(store.store)
	store.stop()
	if info := a.info(nil); !strings.Contains(info, "server_name:miniredis") {
		t.Errorf("INFO of a closed store: %q", info)
	}
}
