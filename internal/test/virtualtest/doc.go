// Package virtualtest runs tests of whole proxies in virtual time: in a bubble of testing/synctest,
// over the network of package virtualnet, with miniredis behind. Time passes only while all
// goroutines wait, and at once. So an hour takes no time, a stall of the machine changes nothing,
// and tests can assert exact times.
//
// A test is written as for real servers, with package proxytest, except for two calls:
//
//	func TestLease(t *testing.T) {
//		virtualtest.Run(t, func(t *testing.T) {
//			store, p := virtualtest.StartBoth(t) // instead of proxytest.StartBoth
//			c := proxytest.Dial(t, p.Addr)
//			c.Lock("k 3600")
//			time.Sleep(time.Hour)
//			proxytest.Dial(t, store.Addr()).Expect("EXISTS k", ":0\r\n")
//		})
//	}
//
// StartStore replaces testredis.Start in a test that starts its proxies by itself: proxytest.Start
// makes a proxy of this network from the URL of a store of this network. Dial, DialRaw, GoRedis,
// LinkTo, AwaitWaiters and testwait work in both networks.
//
// The rules:
//
//   - A test must make its goroutines, channels, timers and clients within Run.
//   - A test must use no real connection, process or file lock: while it waits for one, no time
//     passes.
//   - A test must not call t.Run or t.Parallel in a bubble. Each subtest calls Run instead.
//   - synctest.Wait replaces sleeps. It returns when all other goroutines wait, so everything that
//     needs no time has then happened. After time.Sleep(d), everything that is due before d has
//     happened; synctest.Wait then awaits everything that is due at d itself.
//   - Reply and testwait have two minutes of virtual time. Before a longer wait, call time.Sleep.
//   - A goroutine reads each connection, as with TLS: there are no event loops.
//   - miniredis has no ACL, MONITOR, CONFIG, SHUTDOWN, WAIT, keyspace notifications or client
//     tracking, of CLIENT only SETNAME and GETNAME, and words some errors differently. A test that
//     needs these uses a real server.
//   - Store has Pause, Resume, Kill and Restart (with its keys), Answer for commands that miniredis
//     lacks, and Refuse instead of rights. proxytest.LinkTo and its faults work here, too.
//
// The race detector crashes among timers of bubbles (golang/go#78156). So these tests are in
// packages of their own (test/locks/virtual), whose files have the line
//
//	//go:build !race
//
// and make test runs them by a second go test. test/locks/real tests a few of the same paths with
// the race detector and real servers.
package virtualtest
