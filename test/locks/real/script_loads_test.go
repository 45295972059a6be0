package real_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd/script"
)

// When the upstream has lost its scripts, many clients find that at the same time. The scripts are
// sent once for all of them, and in a cluster once for each part of its slots; there no node is
// sent the script for several locks, which is never called. Each client is answered as if nothing
// had happened.
func TestLostScriptsAreLoadedOnce(t *testing.T) {
	t.Parallel()
	for kind, n := range map[string]int{"single": 30, "cluster": 60} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var servers []*testredis.Server
			url := ""
			if kind == "single" {
				servers = []*testredis.Server{testredis.Start(t)}
				url = servers[0].URL()
			} else {
				cluster := testredis.StartCluster(t, 3, 0)
				servers, url = cluster.Nodes, cluster.URL()
			}
			p := proxytest.Start(t, url, nil)
			var admins []*proxytest.Conn
			for _, s := range servers {
				admins = append(admins, proxytest.Dial(t, s.Addr()))
			}
			var clients []*proxytest.Conn
			for i := range n {
				c := proxytest.SharedClient(t, p.Addr)
				c.Send(fmt.Sprintf("LOCK job:%d 600", i))
				clients = append(clients, c)
				c.Reply()
			}
			for _, admin := range admins {
				admin.Expect("SCRIPT FLUSH", "+OK\r\n")
				admin.Expect("CONFIG RESETSTAT", "+OK\r\n")
			}
			for i, c := range clients {
				c.Send(fmt.Sprintf("UNLOCK job:%d", i), fmt.Sprintf("LOCK job:%d 600", i))
			}
			for _, c := range clients {
				c.WantReply(":1\r\n")
				if got := c.Reply(); got[0] != ':' {
					t.Errorf("LOCK: %q", got)
				}
			}
			loads, bytes := 0, 0
			for _, admin := range admins {
				stats := admin.Do("INFO everything")
				loads += stat(stats, `cmdstat_script\|load:calls=(\d+)`) +
					stat(stats, `cmdstat_eval:calls=(\d+)`)
				bytes += stat(stats, `total_net_input_bytes:(\d+)`)
				if got := admin.Do("SCRIPT EXISTS " + script.BatchSHA); kind == "cluster" &&
					!strings.HasSuffix(got, ":0\r\n") {
					t.Errorf("a node has the script for several locks")
				}
			}
			t.Logf("%d loads, %d bytes", loads, bytes)
			if loads == 0 || loads > n {
				t.Errorf("the scripts were sent %d times for %d clients", loads, n)
			}
		})
	}
}

// stat reads a number from the answer to INFO.
func stat(info, pattern string) int {
	found := regexp.MustCompile(pattern).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
