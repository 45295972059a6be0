// Package virtualtest runs tests of whole proxies in virtual time: in a bubble of testing/synctest,
// over the network of package virtualnet, with miniredis behind. Time passes there only while all
// goroutines wait, and at once, so an hour costs nothing, and a machine that stops for a moment
// changes nothing. Exact times can be asserted.
//
// A test is written as for real servers, with package proxytest, but for two words:
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
// StartStore replaces testredis.Start where a test starts its proxies by itself: proxytest.Start makes a proxy of this network from the URL of a store of this network,
// and Dial, DialRaw, GoRedis, LinkTo, AwaitWaiters and testwait know both.
//
// What to know:
//
//   - Everything that a test uses must be made within Run: goroutines, channels, timers, clients.
//   - No real connection, process or lock on a file: while one is waited for no time passes.
//   - t.Run and t.Parallel cannot be called in a bubble. Call Run in each subtest instead.
//   - synctest.Wait returns when all other goroutines wait: all that can happen without the passing
//     of time has happened then. It replaces sleeps. Behind time.Sleep(d) what is due within d has
//     been done; what is due at that very instant may not, until synctest.Wait.
//   - Reply and testwait have two minutes of virtual time. Behind a longer wait, time.Sleep first.
//   - There are no event loops: every connection is read by a goroutine, as with TLS.
//   - miniredis has no ACL, MONITOR, CONFIG, SHUTDOWN, WAIT, keyspace notifications or client
//     tracking, of CLIENT only SETNAME and GETNAME, and says some errors in other words. What needs
//     them stays with a real server.
//   - Store has Pause, Resume, Kill and Restart (with its keys), Answer for commands that miniredis
//     lacks, and Refuse instead of rights. proxytest.LinkTo and its faults
//     work here, too.
//
// The race detector crashes among timers of bubbles (golang/go#78156). So these tests are in
// packages of their own (test/locks/virtual), whose files have the line
//
//	//go:build !race
//
// and make test runs them by a second go test. A few of the same paths are tested with the race
// detector and real servers, in test/locks/real.
package virtualtest
