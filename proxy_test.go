// Package lockproxy_test is a tour: what lockproxy does, by one short test each. Every test starts
// a real redis-server and a proxy in front of it, and speaks to both over sockets.
//
// The tests that prove it are in test:
//
//	test/relay     what comes through is what Redis says, for every command and every transport
//	test/sharing   clients that share upstream connections notice nothing of each other
//	test/locks     the lock commands: order, fairness, sessions, owners, fencing, foreign locks;
//	               real has real servers, virtual has virtual time
//	test/cluster   in front of a Redis Cluster
//	test/faults    what faults break, and what they must not (make test-faults, make long SUITE=cluster)
//	test/clients   real client libraries in several languages (make test-clients)
//	test/browser   the live page in Chromium (make test-admin)
//
// Packages test their own logic next to their code. internal/test/proxytest is what tests share.
package lockproxy_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// Commands that are not lock commands reach Redis as they came, and so do its replies.
func TestTourRelay(t *testing.T) {
	redis, proxy := proxytest.StartBoth(t)
	direct, client := proxytest.Dial(t, redis.Addr()), proxytest.Dial(t, proxy.Addr)
	client.Expect("SET greeting hello", "+OK\r\n")
	direct.Expect("GET greeting", "$5\r\nhello\r\n")
	client.Expect("LPUSH greeting x", direct.Do("LPUSH greeting x"))
}

// LOCK answers with a token, or with null while another
// client holds the lock. UNLOCK with the token frees it.
func TestTourLock(t *testing.T) {
	_, proxy := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, proxy.Addr), proxytest.Dial(t, proxy.Addr)
	token := a.Lock("job 600")
	b.Expect("LOCK job 600", "$-1\r\n")
	a.Expect(proxytest.Unlock("job", token), ":1\r\n")
	if later := b.Lock("job 600"); later <= token {
		t.Errorf("token %d follows %d: tokens must rise", later, token)
	}
}

// LOCK ... WAIT answers as soon as the lock is the client's. Waiters queue in order of arrival.
func TestTourWait(t *testing.T) {
	_, proxy := proxytest.StartBoth(t)
	holder, first, second := proxytest.Dial(t, proxy.Addr), proxytest.Dial(t, proxy.Addr),
		proxytest.Dial(t, proxy.Addr)
	token := holder.Lock("job 600")
	first.Send("LOCK job 600 WAIT 10")
	proxytest.AwaitWaiters(t, proxy, "job", 1)
	second.Send("LOCK job 600 WAIT 10")
	proxytest.AwaitWaiters(t, proxy, "job", 2)
	holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
	token = proxytest.Token(t, first.Reply())
	first.Expect(proxytest.Unlock("job", token), ":1\r\n")
	proxytest.Token(t, second.Reply())
}

// A SESSION lock is renewed for as long as the client is connected (test/locks/virtual has hours of
// that), and free when it is not.
func TestTourSession(t *testing.T) {
	_, proxy := proxytest.StartBoth(t)
	holder, other := proxytest.Dial(t, proxy.Addr), proxytest.Dial(t, proxy.Addr)
	holder.Lock("job 600 SESSION")
	other.Expect("LOCK job 600", "$-1\r\n")
	holder.Close()
	other.Send("LOCK job 600 WAIT 600")
	proxytest.Token(t, other.Reply())
}

// FENCE runs a command only while the token's lock is held, and in one step with that check.
func TestTourFence(t *testing.T) {
	_, proxy := proxytest.StartBoth(t)
	client := proxytest.Dial(t, proxy.Addr)
	token := client.Lock("job 600")
	client.Expect(fmt.Sprintf("FENCE job %d SET result done", token), "+OK\r\n")
	client.Expect(proxytest.Unlock("job", token), ":1\r\n")
	client.Expect(fmt.Sprintf("FENCE job %d SET result late", token), "-FENCED …")
	client.Expect("GET result", "$4\r\ndone\r\n")
}
