package real_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Users see only the keys that they may read, whatever else they may do.
func TestLockTopAndLogByUser(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	admin := proxytest.Dial(t, p.Addr)
	for _, user := range []string{
		"app on >secret ~app:* resetchannels +@all",
		"writer on >secret %W~app:* resetchannels +@all",
		"none on >secret ~app:* resetchannels +@all -pttl",
	} {
		admin.Expect("ACL SETUSER "+user, "+OK\r\n")
	}
	for i := range 40 {
		admin.Lock(fmt.Sprintf("secret:%d 300", i))
	}
	admin.Lock("app:1 300")
	for i := range 40 {
		admin.Lock(fmt.Sprintf("more:%d 300", i))
	}
	for user, keys := range map[string]int{"app": 1, "writer": 0, "none": 0} {
		ask := redis.NewClient(testredis.Patient(&redis.Options{
			Addr: p.Addr, Username: user, Password: "secret",
			MaxRetries: -1, DisableIdentity: true}))
		defer ask.Close()
		for _, command := range [][]any{{"LOCKTOP", "COUNT", 5}, {"LOCKTOP", "SHAPES"},
			{"LOCKLOG", "COUNT", 1}, {"LOCKLOG", "secret:3"}} {
			want := keys
			if command[len(command)-1] == "secret:3" {
				want = 0
			}
			reply, err := ask.Do(proxytest.Ctx, command...).Result()
			list := proxytest.AsMaps(t, reply, err)
			if len(list) != want ||
				want == 1 && !strings.HasPrefix(list[0]["key"].(string), "app:") {
				t.Errorf("%s: %v: %v", user, command, list)
			}
		}
	}
	admin.Expect("ACL SETUSER default on >other", "+OK\r\n")
	testwait.Until(t, "new clients must log in", func() bool {
		return strings.HasPrefix(proxytest.Dial(t, p.Addr).Do("LOCKTOP"), "-NOAUTH")
	})
}
