//go:build !race

package virtual_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// While FENCE checks its token, what is behind the upstream fails for one of its requests: a node
// of a cluster is lost, or the Redis behind another proxy. The client is told, and neither a
// transaction nor a watch is left on its connection.
func TestFenceLeavesNothingBehindAFailure(t *testing.T) {
	const lost = "UPSTREAM connection to a node was lost before the reply"
	virtualtest.Run(t, func(t *testing.T) {
		for _, refused := range [][]string{{"EVAL", "EVALSHA"}, {"WATCH"}, {"MULTI"}} {
			for _, shared := range []string{"", " SHARED"} {
				virtualtest.Part(t, refused[0]+shared, func(t *testing.T) {
					store, p := virtualtest.StartBoth(t)
					c := proxytest.SharedClient(t, p.Addr)
					token := c.Lock("job 60" + shared)
					fence := fmt.Sprintf("FENCE job %d SET state 1", token)
					c.Expect(fence, "+OK\r\n")
					store.Refuse(lost, refused...)
					c.Expect(fence, "-UPSTREAM …")
					store.Answer(nil, refused...)
					c.Expect("GET state", "$1\r\n1\r\n")
					c.Expect("MULTI", "+OK\r\n")
					c.Expect("GET state", "+QUEUED\r\n")
					store.Ask("DEL", "job") // what FENCE watched
					c.Expect("EXEC", "*1\r\n$1\r\n1\r\n")
				})
			}
		}
	})
}

// The connection is lost on which FENCE ends its transaction: the client is told that the outcome
// is unknown.
func TestFenceLosesItsTransaction(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, up := range []bool{true, false} {
			_, relay, p := attackBoth(t)
			c := proxytest.Dial(t, p.Addr)
			token := c.Lock("job 600")
			rule := &attackRule{up: up, text: "EXEC", cut: true, met: make(chan struct{}),
				over: make(chan struct{})}
			relay.add(rule)
			c.Expect(fmt.Sprintf("FENCE job %d SET state 1", token), "-UPSTREAM …")
			<-rule.met
		}
	})
}
