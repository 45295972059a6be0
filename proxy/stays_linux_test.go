package proxy

import (
	"testing"
	"time"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
)

// A client that a judge has let in waits for a lock, and meanwhile its home is opened. The next
// question for the lock, with which the home is asked for its number, is sent.
func TestHomeIsOpenedDuringAWait(t *testing.T) {
	server := testredis.Start(t)
	redis, err := upstream.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	// Without CLIENT TRACKING the first waiter asks four times a second.
	server.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-client|tracking")
	s := New(Config{Upstream: redis, MaxClients: 100, UpstreamConns: 4,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour}})
	addr := serve(t, s)
	login := func(name string) *talker {
		c := talk(t, addr, name)
		c.say("AUTH ann pw")
		c.hear("+OK")
		return c
	}
	holder, user := login("the holder"), login("another user")
	holder.say("LOCK job 600")
	holder.hear(":")
	var waiter *talker
	var sess *session
	testwait.Until(t, "a judge hears a login", func() bool {
		for _, one := range []*talker{holder, user} {
			one.say("PING")
			one.hear("+PONG")
		}
		waiter = login("the waiter")
		sess = sessionOf(t, s, waiter)
		return sess.pipe.Status().Home == nil
	})
	waiter.say("LOCK job 600 WAIT 600")
	testwait.Until(t, "it waits", func() bool { return sess.client.is(locking) })
	testwait.Until(t, "its home is opened", func() bool { return sess.pipe.Status().Home != nil })
	testwait.Until(t, "the home's number is known", func() bool { return sess.pipe.Status().ID != 0 })
	testwait.Until(t, "the question is answered", func() bool {
		return !sess.pipe.Status().AsksItself
	})
	holder.say("UNLOCK job")
	holder.hear(":1")
	waiter.hear(":")
}
