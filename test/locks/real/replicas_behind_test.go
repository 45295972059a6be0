package real_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// replicated is a master with a replica of its own, alone or in a cluster.
type replicated struct {
	url             string
	master, replica *testredis.Server
}

func startReplicated(t *testing.T) map[string]replicated {
	single := testredis.Start(t)
	cluster := testredis.StartCluster(t, 3, 1)
	of := cluster.MasterOf(cluster.Slot("{job}"))
	return map[string]replicated{
		"single":  {single.URL(), single, testredis.StartReplicas(t, single, 1)[0]},
		"cluster": {cluster.URL(), of, cluster.ReplicaOf(of)},
	}
}

// scripts is how many scripts a server has run.
func scripts(s *testredis.Server) int {
	calls := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(
		s.Ask("INFO", "commandstats"))
	if calls == nil {
		return 0
	}
	n, _ := strconv.Atoi(calls[1])
	return n
}

// Replicas must confirm only what is given out. Next to one that lags, a waiter goes on polling, is
// given a value as soon as it is there, and is unblocked at once; and who is told that a lock is
// held, or that a token is no holder's, does not wait for the replica.
func TestWhatGivesNothingWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	for name, at := range startReplicated(t) {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, at.url, proxytest.WithSlowReplicas(1))
			other := proxytest.Dial(t, proxytest.Start(t, at.url, nil).Addr) // it asks no replica
			made := proxytest.Token(t, other.Do("ONCE {job}v 600"))
			held := other.Lock("{job}l 600")
			reader, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			asker := proxytest.Dial(t, p.Addr)
			asker.Expect("SET {job}written 1", "+OK\r\n")
			all := proxytest.Dial(t, p.Addr)
			id := regexp.MustCompile(`\d+`).FindString(waiter.Do("CLIENT ID"))
			reader.Send("ONCE {job}v 600 WAIT 0")
			waiter.Send("LOCK {job}l 600 WAIT 0")
			all.Send("LOCKALL 600 2 {job}l {job}m WAIT 0")
			proxytest.AwaitWaiters(t, p, "{job}v:once:tag", 1)
			proxytest.AwaitWaiters(t, p, "{job}l", 2)

			at.replica.Pause()
			before := scripts(at.master)
			testwait.Until(t, "they go on polling", func() bool {
				return scripts(at.master) >= before+12
			})
			asker.Expect("MULTI", "+OK\r\n") // it has a connection of its own, which has written
			asker.Expect("SET {job}written 2", "+QUEUED\r\n")
			asker.Expect("EXEC", "*1\r\n+OK\r\n")
			asker.Expect("LOCK {job}l 600", "$-1\r\n")
			asker.Expect(fmt.Sprintf("RELOCK {job}l %d 600", held+1), ":0\r\n")
			asker.Expect("LOCKALL 600 2 {job}l {job}m", "$-1\r\n")
			asker.Expect("CLIENT UNBLOCK "+id, ":1\r\n")
			waiter.WantReply("$-1\r\n")
			other.Expect(fmt.Sprintf("DONE {job}v %d text", made), ":1\r\n")
			reader.WantReply("$4\r\ntext\r\n")

			at.replica.Resume()
			other.Expect(proxytest.Unlock("{job}l", held), ":1\r\n")
			proxytest.Token(t, all.Reply())
		})
	}
}
