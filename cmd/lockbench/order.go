package main

import (
	"fmt"
	"time"
)

// order is who comes first: client A's request is on the wire some time before client B's, and
// MONITOR says which of them Redis ran first. Each pair of kinds of requests is tried with each gap
// through lockproxy, through HAProxy with one thread, and through lockproxy in front of three
// masters.
type order struct {
	trials  int // of one pair with one gap, in one round
	results map[orderCase]*orderResult
}

// orderCase is a pair of kinds with a gap between them, by one of the ways.
type orderCase struct {
	first, second, gap, way int // indexes of orderKinds, orderGaps and orderWays
}

// orderResult is what became of the trials. A trial whose gap was not kept does not count.
type orderResult struct{ wrong, right int }

var orderWays = []string{viaLockproxy, viaHAProxyThread, viaMasters}

var orderGaps = []time.Duration{50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond}

// orderKind is a kind of request. tag is the word by which MONITOR's line is found.
type orderKind struct {
	name    string
	fresh   bool // on a connection that was just opened
	prepare func(tag string) []string
	request func(way, tag string) [][]string
	replies int // to the request
	after   func(tag string) []string
	redis   func(tag string) []string // what somebody else does so that the request is answered
}

func words(name string) func(way, tag string) [][]string {
	return func(_, tag string) [][]string { return [][]string{{name, tag}} }
}

var orderKinds = []orderKind{
	{name: "plain", request: words("GET"), replies: 1},
	{name: "blocking", replies: 1,
		request: func(_, tag string) [][]string { return [][]string{{"BLPOP", tag, "0"}} },
		redis:   func(tag string) []string { return []string{"RPUSH", tag, "x"} }},
	{name: "SUBSCRIBE", request: words("SUBSCRIBE"), replies: 1,
		after: func(tag string) []string { return []string{"UNSUBSCRIBE", tag} }},
	{name: "UNSUBSCRIBE", request: words("UNSUBSCRIBE"), replies: 1,
		prepare: func(tag string) []string { return []string{"SUBSCRIBE", tag} }},
	{name: "transaction", replies: 3, request: func(_, tag string) [][]string {
		return [][]string{{"MULTI"}, {"GET", tag}, {"EXEC"}}
	}},
	{name: "script", replies: 1,
		request: func(_, tag string) [][]string {
			return [][]string{{"EVAL", "return 1", "1",
				tag}}
		}},
	{name: "lock", replies: 1, request: func(way, tag string) [][]string {
		if way != viaHAProxyThread {
			return [][]string{{"LOCK", tag, "1"}}
		}
		return [][]string{{"SET", tag, "1", "NX", "PX", "1000"}}
	}},
	{name: "first after connect", fresh: true, request: words("GET"), replies: 1},
}

func orderPart(quick bool) *part {
	j := &order{trials: 100, results: map[orderCase]*orderResult{}}
	p := &part{rounds: 10, needs: needs{targets: orderWays, masters: masterCount},
		others: true, jobs: []job{j}}
	if quick {
		p.rounds, j.trials = 2, 50
	}
	return p
}

func (j *order) title() string { return "Order" }
func (j *order) group() int    { return len(orderWays) }

func (j *order) at(i int) (c orderCase) {
	c.way, i = i%len(orderWays), i/len(orderWays)
	c.gap, i = i%len(orderGaps), i/len(orderGaps)
	c.second, c.first = i%len(orderKinds), i/len(orderKinds)
	return c
}

func (j *order) cases() (names []string) {
	for i := range len(orderKinds) * len(orderKinds) * len(orderGaps) * len(orderWays) {
		c := j.at(i)
		names = append(names, fmt.Sprintf("%s before %s by %v, %s", orderKinds[c.first].name,
			orderKinds[c.second].name, orderGaps[c.gap], orderWays[c.way]))
	}
	return names
}

func (j *order) measure(b *bench, i int) error {
	c := j.at(i)
	result := j.results[c]
	if result == nil {
		result = &orderResult{}
		j.results[c] = result
	}
	t, err := newOrderTrials(b, b.targets[c.way], c)
	if err != nil {
		return err
	}
	defer t.close()
	for n := range j.trials {
		right, kept, err := t.try(n)
		switch {
		case err != nil:
			return b.failed(b.targets[c.way], j.cases()[i], err)
		case !kept:
		case right:
			result.right++
		default:
			result.wrong++
		}
	}
	return nil
}
