package proxy

import (
	"sync/atomic"
	"time"

	"lockproxy/lockcmd"
	"lockproxy/lockcmd/syntax"
)

// Kind says what the proxy does with a request. There are few kinds, and each has a counter.
type Kind uint8

const (
	Relayed     Kind = iota // unchanged
	Introspects             // answered with the upstream's reply, completed: COMMAND
	firstLock               // the lock commands, in the order of syntax.Specs
)

// Kinds is how many there are.
var Kinds = int(firstLock) + len(syntax.Specs)

// maxKinds bounds Kinds, for arrays.
const maxKinds = 16

// String is the kind as a label.
func (k Kind) String() string {
	switch {
	case k == Relayed:
		return "relay"
	case k == Introspects:
		return "introspect"
	}
	return syntax.Specs[k-firstLock].Name
}

// kindOf is the kind of a lock command.
func kindOf(spec *syntax.Spec) Kind {
	for i := range syntax.Specs {
		if spec == &syntax.Specs[i] {
			return firstLock + Kind(i)
		}
	}
	return Relayed
}

// Observer is told how long things took. It is called from many goroutines and must not block.
type Observer interface {
	lockcmd.Observer
	// CommandTook tells the time from a request's arrival to its reply's departure. Of relayed
	// requests it tells a sample (see sampleEvery), of LOCKs only those without WAIT.
	CommandTook(kind Kind, d time.Duration)
}

// sampleEvery is of how many reads of a session one is timed: the clock costs too.
const sampleEvery = 64

// Traffic is what sessions have carried.
type Traffic struct {
	Commands [maxKinds]uint64
	BytesIn  uint64 // from clients, without TLS and PROXY headers
	BytesOut uint64 // to clients, likewise
}

// traffic is what a session has carried. The session and its Pipe add to it; anybody can read it.
type traffic struct {
	commands [maxKinds]atomic.Uint64
	in, out  atomic.Uint64
}

// addTo adds what has been carried so far to a sum.
func (t *traffic) addTo(sum *Traffic) {
	for i := range t.commands {
		sum.Commands[i] += t.commands[i].Load()
	}
	sum.BytesIn += t.in.Load()
	sum.BytesOut += t.out.Load()
}

// meter counts for one session. A request costs a plain addition: others see it after publish.
type meter struct {
	traffic
	observer Observer  // nil for none
	origin   time.Time // of asked

	unpublished [maxKinds]uint32 // only for the reader of the client
	reads       uint64           // likewise
	asked       atomic.Int64     // when the timed request came, ns since origin; 0 for none
}

// Sent counts n bytes of replies.
func (m *meter) Sent(n int) {
	m.out.Add(uint64(n))
	if asked := m.asked.Load(); asked != 0 {
		m.asked.Store(0)
		m.observer.CommandTook(Relayed, time.Since(m.origin)-time.Duration(asked))
	}
}

// received counts n bytes that were read from the client.
func (m *meter) received(n int) {
	m.in.Add(uint64(n))
	if m.reads++; m.reads%sampleEvery == 0 && m.observer != nil {
		m.asked.Store(int64(time.Since(m.origin)))
	}
}

// count counts a request.
func (m *meter) count(kind Kind) {
	m.unpublished[kind]++
	if kind != Relayed {
		m.asked.Store(0) // the sample is of relayed requests
	}
}

// publish lets others see what count has counted.
func (m *meter) publish() {
	for kind, n := range m.unpublished[:Kinds] {
		if n != 0 {
			m.commands[kind].Add(uint64(n))
			m.unpublished[kind] = 0
		}
	}
}
