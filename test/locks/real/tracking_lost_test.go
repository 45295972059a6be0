package real_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// trackers are the connections that track keys, by CLIENT LIST.
func trackers(direct *redis.Client) (list []map[string]string) {
	for line := range strings.SplitSeq(direct.ClientList(proxytest.Ctx).Val(), "\n") {
		one := map[string]string{}
		for _, field := range strings.Fields(line) {
			name, value, _ := strings.Cut(field, "=")
			one[name] = value
		}
		if strings.Contains(one["flags"], "t") {
			list = append(list, one)
		}
	}
	return list
}

// The connection that tracks keys is lost in each of these ways. It comes back, and tells of what
// happens to a session lock from then on, and to one that was lost meanwhile. The locks are renewed
// after twenty minutes only.
func TestTrackingComesBack(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testredis.Server, *redis.Client){
		"killed": func(_ *testredis.Server, r *redis.Client) { killTracking(r) },
		"all are killed": func(s *testredis.Server, _ *redis.Client) {
			s.Ask("CLIENT", "KILL", "TYPE", "pubsub")
			s.Ask("CLIENT", "KILL", "TYPE", "normal")
		},
		"killed again":   func(_ *testredis.Server, r *redis.Client) { killTracking(r); killTracking(r) },
		"deleted behind": nil, // a key is deleted while nobody tracks it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.StartBy(t, testredis.TCP) // the connections are cut there
			p := proxytest.Start(t, server.URL(), nil)
			direct := proxytest.GoRedis(t, server.Addr())
			var conns []*proxytest.Conn
			for _, key := range []string{"a", "b"} {
				c := proxytest.Dial(t, p.Addr)
				c.Lock(key + " 3600 SESSION")
				conns = append(conns, c)
			}
			awaitTracking(t, direct, "2")
			before := trackers(direct)[0]["id"]
			lost := func() bool {
				list := trackers(direct)
				return len(list) == 0 || list[0]["id"] != before
			}
			switch name {
			case "all are killed":
				// The clients' own connections may be among them: other clients take the locks.
				lose(server, direct)
				for i, key := range []string{"a", "b"} {
					conns[i].Close()
					testwait.Until(t, "a lock can be taken", func() bool {
						conns[i] = proxytest.Dial(t, p.Addr)
						return conns[i].Do("LOCK again-" + key + " 3600 SESSION OWNER me")[0] == ':'
					})
				}
			case "deleted behind":
				_, err := direct.TxPipelined(proxytest.Ctx, func(pipe redis.Pipeliner) error {
					pipe.ClientKillByFilter(proxytest.Ctx, "ID", before)
					pipe.Del(proxytest.Ctx, "a")
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				conns[0].Closed()
				conns = conns[1:]
			default:
				lose(server, direct)
			}
			testwait.Until(t, "it is lost", lost)
			testwait.Until(t, "another tracks", func() bool { return len(trackers(direct)) == 1 })
			conns[len(conns)-1].Expect("PING", "+PONG\r\n")
			direct.Del(proxytest.Ctx, "b", "again-b")
			conns[len(conns)-1].Closed()
		})
	}
}

// A restart of Redis ends the connection, too. Locks that are taken afterwards are tracked at once.
func TestTrackingAfterARestart(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	c.Lock("before 3600 SESSION")
	awaitTracking(t, direct, "1")
	server.Restart()
	c.Close()
	var after *proxytest.Conn
	testwait.Until(t, "a lock can be taken", func() bool {
		after = proxytest.Dial(t, p.Addr)
		return after.Do("LOCK after 3600 SESSION")[0] == ':'
	})
	testwait.Until(t, "a connection tracks", func() bool { return len(trackers(direct)) == 1 })
	direct.Del(proxytest.Ctx, "after")
	after.Closed()
}

// Redis closes what is idle for two seconds. The connection that tracks is not, though nothing
// happens to its keys.
func TestTrackingOutlastsTheTimeout(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	server.Ask("CONFIG", "SET", "timeout", "2")
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	c.Lock("job 3600 SESSION")
	awaitTracking(t, direct, "1")
	first := trackers(direct)[0]["id"]
	testwait.Until(t, "it is old", func() bool {
		list := trackers(direct)
		if len(list) != 1 || list[0]["id"] != first {
			t.Fatalf("connection %s tracked, and now %v", first, list)
		}
		age, _ := strconv.Atoi(list[0]["age"])
		return age >= 7
	})
	direct.Del(proxytest.Ctx, "job")
	c.Closed()
}

// Twenty users, and twelve databases of one, have a session lock each. All are told when their
// keys are deleted. When they have gone, nothing is tracked any more but for what is left.
func TestManyLoginsAreTracked(t *testing.T) {
	t.Parallel()
	var args []string
	for i := range 20 {
		args = append(args, "--user", fmt.Sprint("u", i), "on", ">pw", "~*", "&*", "+@all")
	}
	for name, n := range map[string]int{"users": 20, "databases": 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, p := proxytest.StartBoth(t, args...)
			direct := proxytest.GoRedis(t, server.Addr())
			var conns []*proxytest.Conn
			for i := range n {
				c := proxytest.Dial(t, p.Addr)
				if name == "users" {
					c.Expect(fmt.Sprintf("AUTH u%d pw", i), "+OK\r\n")
				} else {
					c.Expect(fmt.Sprint("SELECT ", i), "+OK\r\n")
				}
				c.Lock(fmt.Sprintf("job%d 3600 SESSION", i))
				conns = append(conns, c)
			}
			testwait.Until(t, "all are tracked", func() bool { return len(trackers(direct)) == n })
			awaitTracking(t, direct, strconv.Itoa(n))
			for i := range n - 1 {
				if name == "users" {
					direct.Del(proxytest.Ctx, fmt.Sprint("job", i+1))
				} else {
					proxytest.GoRedis(t, server.Addr()).Do(proxytest.Ctx, "EVAL",
						"redis.call('SELECT', ARGV[1]) return redis.call('DEL', KEYS[1])", 1,
						fmt.Sprint("job", i+1), i+1)
				}
				conns[i+1].Closed()
			}
			testwait.Until(t, "one is left", func() bool { return len(trackers(direct)) == 1 })
			conns[0].Expect("PING", "+PONG\r\n")
			direct.Del(proxytest.Ctx, "job0")
			conns[0].Closed()
		})
	}
}
