package real_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// hashOf is what messages call a lock.
func hashOf(db int, key string) string {
	hash := names.Lock{DB: db, Key: key}.Hash()
	return hex.EncodeToString(hash[:])
}

// A user who may use the channel of a proxy, and no key of others, writes there whatever it likes.
// The proxy connects to no other database for it, runs no script as others for locks that nobody
// here has waited for, and goes on.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user", "mallory", "on", ">pw", "~mallory:*", "resetchannels",
		"&lockproxy:wake:*", "+@all")
	p := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	mallory := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr(),
		Username: "mallory", Password: "pw", Protocol: 2, DisableIdentity: true}))
	t.Cleanup(func() { mallory.Close() })
	session, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	setUntracked(direct)
	token := session.Lock("job 3600 SESSION")
	waiter.Send("LOCK job 3600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	channel := "lockproxy:wake:" + p.Server.ID()
	testwait.Until(t, "the proxy listens", func() bool {
		return strings.Contains(server.Ask("PUBSUB", "CHANNELS"), channel)
	})
	publish := func(text string) {
		if err := mallory.Publish(proxytest.Ctx, channel, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for db := range 16 {
		publish(fmt.Sprintf("%d:x", db))
		publish(fmt.Sprintf("lost:%d:x", db))
		for i := range 20 {
			publish(hashOf(db, fmt.Sprint("x", i)))
			publish("lost:" + hashOf(db, fmt.Sprint("x", i)))
		}
	}
	for _, text := range []string{"", ":", "lost:", "lost:lost:", "-1:x", "99999999999999999999:x",
		strings.Repeat("f", 40), strings.Repeat("f", 1<<20), "lost:" + strings.Repeat("0", 40)} {
		publish(text)
		mallory.Publish(proxytest.Ctx, "lockproxy:wake:{waits}", text)
		mallory.Publish(proxytest.Ctx, "lockproxy:wake:{waits}", "2 "+text)
	}
	// The last messages are true, and come behind the others: the waiter is told at once.
	for _, text := range []string{"lost:" + hashOf(0, "job"), hashOf(0, "job")} {
		publish(text)
	}
	_, before := scriptCalls(t, direct)
	testwait.Until(t, "the proxy has looked", func() bool {
		_, now := scriptCalls(t, direct)
		return now > before
	})
	for line := range strings.SplitSeq(direct.ClientList(proxytest.Ctx).Val(), "\n") {
		if strings.Contains(line, "db=") && !strings.Contains(line, "db=0") {
			t.Errorf("a connection: %s", line)
		}
	}
	session.Expect("PING", "+PONG\r\n")
	session.Expect(proxytest.Unlock("job", token), ":1\r\n")
	proxytest.Token(t, waiter.Reply())
}
