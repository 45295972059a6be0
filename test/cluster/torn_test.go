package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// tornRequest is a request whose reply is cut off. COUNTER is a counter's name, NEXT its next
// value.
type tornRequest struct {
	asked  []string // the last of which has the reply
	reply  string   // as the server sends it
	check  string   // what the server is asked afterwards
	want   string   // its answer, if it has run each request once
	joined bool     // a cluster's reply is made of several nodes'
}

var tornRequests = []tornRequest{
	{asked: []string{"INCR COUNTER"}, reply: ":NEXT\r\n", check: "GET COUNTER", want: "NEXT"},
	{asked: []string{"EVAL return(redis.call('INCR',KEYS[1])) 1 COUNTER"}, reply: ":NEXT\r\n",
		check: "GET COUNTER", want: "NEXT"},
	{asked: []string{"MULTI", "INCR COUNTER", "ECHO NEXT", "EXEC"},
		reply: "*2\r\n:NEXT\r\n$6\r\nNEXT\r\n", check: "GET COUNTER", want: "NEXT"},
	{asked: []string{"RPUSH COUNTERlist NEXT x x", "BLPOP COUNTERlist 1"}, reply: "$6\r\nNEXT\r\n",
		check: "LLEN COUNTERlist", want: ":2"},
	{asked: []string{"INCR COUNTER", "MGET COUNTER ELSEWHERE"}, reply: "*1\r\n$6\r\nNEXT\r\n",
		check: "GET COUNTER", want: "NEXT", joined: true},
}

// A connection to a server is lost at each byte of a reply that is awaited. What the server ran is
// never said not to have been sent, nor run again, and all other replies are right.
func TestConnectionLostWithinAReply(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartLinkedCluster(t, 0, 3, 0)
	group := testredis.StartGroup(t, testredis.GroupOptions{Linked: true, Replicas: 1,
		Sentinels: 1, SentinelLines: []string{"sentinel down-after-milliseconds mymaster 60000"}})
	here, elsewhere := tagOf(t, cluster, cluster.Nodes[1]), tagOf(t, cluster, cluster.Nodes[2])
	for name, up := range map[string]struct {
		url    string
		server *testredis.Server
	}{
		"cluster":  {cluster.URL(), cluster.Nodes[1]},
		"sentinel": {group.URL(), group.Servers[0]},
	} {
		for _, dedicated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dedicated %v", name, dedicated), func(t *testing.T) {
				p := proxytest.Start(t, up.url, func(cfg *proxy.Config) {
					cfg.Dedicated = dedicated
				})
				n := 100_000
				for _, r := range tornRequests {
					if r.joined && name != "cluster" {
						continue
					}
					for at := range len(r.reply) + 2*strings.Count(r.reply, "NEXT") + 1 {
						n += 1000
						key := fmt.Sprintf("{%s}%v:%d", here, dedicated, n)
						names := strings.NewReplacer("COUNTER", key, "ELSEWHERE",
							fmt.Sprintf("{%s}%d", elsewhere, n), "NEXT", fmt.Sprint(n))
						if got := up.server.Ask("SET", key, fmt.Sprint(n-1)); got != "+OK" {
							t.Fatal(got)
						}
						r.tear(t, p, up.server, names, at, name == "cluster")
					}
				}
			})
		}
	}
}

// tear asks and has the reply cut off. alone says that requests for ELSEWHERE have a connection to
// themselves.
func (r *tornRequest) tear(t *testing.T, p *proxytest.Proxy, server *testredis.Server,
	names *strings.Replacer, at int, alone bool) {
	t.Helper()
	reset := at%3 == 1
	what := fmt.Sprintf("%s, byte %d, reset %v", r.asked, at, reset)
	c, twin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	defer c.Close()
	defer twin.Close()
	for range 2 { // they share connections, if clients do
		twin.Expect("PING", "+PONG\r\n")
		c.Expect("PING", "+PONG\r\n")
	}
	reply := names.Replace(r.reply)
	torn := server.Link.Tear(reply, at, reset)
	asked := append(append([]string{"SET ELSEWHERE before", "GET ELSEWHERE"}, r.asked...),
		"SET ELSEWHERE after", "GET ELSEWHERE")
	for i := range asked {
		asked[i] = names.Replace(asked[i])
	}
	c.Send(asked...)
	wants := map[int]string{0: "+OK\r\n", 1: wire.Bulk("before"), len(asked) - 2: "+OK\r\n",
		len(asked) - 1: wire.Bulk("after")}
	closed := false
	for i := 0; i < len(asked) && !closed; i++ {
		got, err := c.TryReply()
		want, known := wants[i]
		unsure := strings.HasPrefix(got, "-UPSTREAM ") && strings.Contains(got, "unknown")
		switch {
		case proxytest.IsTimeout(err):
			t.Fatalf("%s: no answer to %s", what, asked[i])
		case err != nil:
			if closed = true; alone || strings.HasPrefix(got, "-") {
				t.Errorf("%s: the end behind %q, for %s", what, got, asked[i])
			}
		case !known && got[0] == '-' && !unsure && !strings.HasPrefix(got, "-EXECABORT "):
			t.Errorf("%s: %s is answered %q", what, asked[i], got)
		case known && got != want && (alone || !strings.HasPrefix(got, "-UPSTREAM ")):
			t.Errorf("%s: %s is answered %q, not %q", what, asked[i], got, want)
		}
	}
	testwait.For(t, what+": something is cut off", torn)
	if got := server.Ask(strings.Fields(names.Replace(r.check))...); got != names.Replace(r.want) {
		t.Errorf("%s: afterwards %s is %s", what, names.Replace(r.check), got)
	}
	if !closed {
		c.Send("ECHO marker")
		got, err := c.TryReply()
		if err == nil && got != wire.Bulk("marker") && !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: ECHO afterwards is answered %q", what, got)
		}
	}
}
