//go:build !race

package virtual_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
)

// A lock is reserved for a waiter of one proxy, which has left. A client of that proxy that does
// not wait does not take it while another waits elsewhere; and takes it once nobody does.
func TestLockTakesNothingReservedForOthers(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q, third := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		holder, leaver := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
		holder.Lock("job 600")
		leaver.Send("LOCK job 600 WAIT 0")
		record := func() string {
			return direct.Get(proxytest.Ctx, keyname.Record([]byte("job"))).Val()
		}
		listed := regexp.MustCompile(` ([^ ,:]+):\d+:\d+:\d+\n`)
		testwait.Until(t, "it is listed", func() bool { return listed.MatchString(record()) })
		proxy := listed.FindStringSubmatch(record())[1]
		leaver.Close()
		testwait.Until(t, "it has left", func() bool { return !listed.MatchString(record()) })
		waiter := proxytest.Dial(t, third.Addr)
		waiter.Send("LOCK job 600 WAIT 0")
		testwait.Until(t, "the other is listed", func() bool { return listed.MatchString(record()) })

		fields := strings.SplitN(record(), " ", 10)
		fields[7], fields[8] = "reserved", proxy
		direct.SetArgs(proxytest.Ctx, keyname.Record([]byte("job")), strings.Join(fields, " "),
			redis.SetArgs{KeepTTL: true})
		tries := proxytest.Dial(t, q.Addr)
		tries.Expect("LOCK job 600", "$-1\r\n")
		tries.Expect("LOCKALL 600 1 job", "$-1\r\n")
		waiter.Close()
		testwait.Until(t, "the other has left", func() bool { return !listed.MatchString(record()) })
		tries.Lock("job 600")
	})
}
