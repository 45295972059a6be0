package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
)

// live is the life of one connection, until over.
func (m *marked) live(over <-chan struct{}) {
	nc, err := proxytest.TryDial(m.addr)
	if err != nil {
		m.t.Error(err)
		return
	}
	defer nc.Close()
	m.c, m.proto = proxytest.Dialed(m.t, nc), 2
	m.values, m.counts = map[string]map[string]bool{}, map[string][2]int{}
	for range 5 + m.rand.IntN(60) {
		if isOver(over) || m.t.Failed() {
			return
		}
		m.asked, m.raw, m.shaken = m.asked[:0], m.raw[:0], 0
		for range 1 + m.rand.IntN(20) {
			m.step()
		}
		if !m.exchange() {
			return
		}
	}
}

// exchange sends the pipeline and judges each reply. It returns false if the connection is of no
// further use.
func (m *marked) exchange() (alive bool) {
	written := make(chan struct{})
	go func() { // ends when all is written, or the connection closed; waited for below
		defer close(written)
		for b := m.raw; len(b) > 0; {
			n := 1 + m.rand.IntN(len(b))
			if _, err := m.c.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
	}()
	defer func() {
		if !alive {
			m.c.Close()
		}
		<-written
	}()
	for i := range m.asked {
		got, err := m.reply()
		if err != nil && !proxytest.IsTimeout(err) {
			m.tally.add("closed")
			return false
		}
		if err != nil {
			m.wrong(i, got+" and no more")
		}
		if m.t.Failed() || !m.judge(i, got) {
			return false
		}
		m.tally.add("asked")
	}
	return m.shaken == 0
}

// reply is the next reply. The messages before it are judged.
func (m *marked) reply() (string, error) {
	for {
		got, err := m.c.TryReply()
		if err != nil || !strings.HasPrefix(got, ">3\r\n$7\r\nmessage\r\n") {
			return got, err
		}
		m.tally.add("messages")
		_, elems, _ := wire.Elements(got)
		var id, life, serial int
		text := elems[2]
		fmt.Sscanf(text[max(strings.IndexByte(text, '<'), 0):], "<%d.%d.%d>", &id, &life, &serial)
		if elems[1] != wire.Bulk(m.channel) || id != m.id || life != m.life ||
			serial <= m.told {
			m.t.Errorf("client %d.%d is told %q, behind message %d", m.id, m.life, got, m.told)
		}
		m.told = serial
	}
}

// refusals are the errors that a client may be told while nodes are lost and replaced.
var refusals = regexp.MustCompile(`^-(UPSTREAM|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|READONLY|` +
	`EXECABORT|UNBLOCKED) `)

// later is what requests are told after an earlier HELLO 3, or EXEC, was lost: the client does not
// know then in which state it is.
var later = regexp.MustCompile(`^-ERR (Can't execute '|FENCE can't be used between WATCH )`)

// judge reports whether the client can go on.
func (m *marked) judge(i int, got string) bool {
	q := &m.asked[i]
	a := done
	ok := q.check != nil && q.check(got)
	if q.check == nil {
		ok, _ = regexp.MatchString("^(?:"+q.want+")$", got)
	}
	switch {
	case ok:
	case refusals.MatchString(got):
		kind := strings.Fields(got)[0]
		if a = notDone; strings.Contains(got, "unknown") || kind == "-UNBLOCKED" {
			a, kind = maybeDone, kind+" unknown"
		}
		m.tally.add(kind)
		m.shaken = q.step
	case m.shaken == q.step && m.ownMarks(q.step, got), m.shaken > 0 && later.MatchString(got):
		a = maybeDone
		m.tally.add("consequences")
	default:
		m.wrong(i, got)
		return false
	}
	if q.after != nil {
		q.after(a)
	}
	return true
}

// ownMarks reports whether a reply has no marks but those of a step's requests. LOCKINFO tells the
// holder's name too, which is of an earlier step.
func (m *marked) ownMarks(step int, got string) bool {
	for _, name := range m.names {
		got = strings.Replace(got, "$4\r\nname\r\n"+wire.Bulk(name), "", 1)
	}
	for _, mark := range marks.FindAllString(got, -1) {
		if mark != fmt.Sprintf("<%d.%d.%d>", m.id, m.life, step) {
			return false
		}
	}
	return true
}

func (m *marked) wrong(i int, got string) {
	var before []string
	for _, q := range m.asked[max(0, i-8):i] {
		before = append(before, fmt.Sprintf("%.60q", q.words))
	}
	m.t.Errorf("client %d.%d (RESP%d), request %d of %d, %.200q: got %.600q, want %.300q, "+
		"before it %s", m.id, m.life, m.proto, i, len(m.asked), m.asked[i].words, got,
		m.asked[i].want, before)
}

// tally counts what happens to all clients.
type tally struct {
	mu sync.Mutex
	n  map[string]int // guarded by mu
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n[what]++
}

func isOver(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// runMarked runs marked clients, with numbers from first on, until over, and waits for them.
func runMarked(t *testing.T, addr string, first int, lossy bool,
	over <-chan struct{}) *tally {
	counted := &tally{n: map[string]int{}}
	var running sync.WaitGroup
	const clients = 20
	for i := first; i < first+clients; i++ {
		running.Go(func() { // ends when over; waited for below
			for life := 0; !isOver(over) && !t.Failed(); life++ {
				m := &marked{t: t, tally: counted, addr: addr, id: i, life: life, lossy: lossy,
					rand: rand.New(rand.NewPCG(uint64(i), uint64(life)))}
				m.live(over)
			}
		})
	}
	running.Wait()
	return counted
}
