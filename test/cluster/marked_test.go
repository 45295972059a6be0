package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
)

// marked is a client whose requests carry marks that no other request has, and what it may be told.
// It asks in pipelines, and goes on reading after an error: so it sees whose replies come then.
type marked struct {
	t        *testing.T
	tally    *tally
	addr     string
	id, life int
	rand     *rand.Rand
	lossy    bool // what was acknowledged can be lost, by a failover

	c       *proxytest.Conn
	proto   int
	serial  int
	asked   []question
	raw     []byte
	shaken  int                        // the last step of this pipeline that was told an error
	values  map[string]map[string]bool // those that each of its keys may have; "" is none
	counts  map[string][2]int          // what INCR may answer, at least and at most
	names   []string                   // those that the connection may have
	isNamed bool                       // it has one of these
	told    int                        // the serial of the last message
	channel string                     // the one that it has subscribed to, in RESP3
}

// question is a request whose reply is awaited.
type question struct {
	words []string
	want  string // a regular expression of the whole reply
	step  int    // requests of one step rest on one another
	check func(got string) (ok bool)
	after func(answer) // what is learned from the answer; nil for nothing
}

// answer is what has become of a request.
type answer int

const (
	done answer = iota
	notDone
	maybeDone
)

func (m *marked) mark(what string) string {
	m.serial++
	return fmt.Sprintf("%s<%d.%d.%d>", what, m.id, m.life, m.serial)
}

var marks = regexp.MustCompile(`<\d+\.\d+\.\d+>`)

// ask adds a request to the pipeline.
func (m *marked) ask(want string, words ...string) *question {
	m.raw = wire.Append(m.raw, words...)
	m.asked = append(m.asked, question{words: words, want: want, step: m.serial})
	return &m.asked[len(m.asked)-1]
}

// exact is the expression of one bulk string.
func exact(s string) string { return regexp.QuoteMeta(wire.Bulk(s)) }

// null is the expression of a null, in both protocols.
const null = `(\$-1|\*-1|_)\r\n`

// key is one of this connection's: in a cluster those of different n are at all nodes.
func (m *marked) key(n int, name string) string {
	return fmt.Sprintf("{%d.%d.%d}%s", m.id, m.life, n, name)
}

// may adds a value that a key may have now.
func (m *marked) may(key, value string) {
	if m.values[key] == nil {
		m.values[key] = map[string]bool{"": true}
	}
	m.values[key][value] = true
}

// set records what has become of a write.
func (m *marked) set(key, value string) func(answer) {
	return func(a answer) {
		if a == done && !m.lossy {
			m.values[key] = map[string]bool{value: true}
		} else if a != notDone {
			m.may(key, value)
		}
	}
}

// named records what has become of a CLIENT SETNAME.
func (m *marked) named(name string) func(answer) {
	return func(a answer) {
		switch a {
		case done:
			m.names, m.isNamed = []string{name}, true
		case maybeDone:
			m.names = append(m.names, name)
		}
	}
}

// isName reports whether raw can be the connection's name.
func (m *marked) isName(raw string) bool {
	for _, name := range m.names {
		if raw == wire.Bulk(name) {
			return true
		}
	}
	return !m.isNamed && (raw == "$-1\r\n" || raw == "_\r\n")
}

// isValue reports whether raw can be the value of a key.
func (m *marked) isValue(key, raw string) bool {
	if raw == "$-1\r\n" || raw == "_\r\n" {
		return m.values[key] == nil || m.values[key][""]
	}
	for value := range m.values[key] {
		if value != "" && raw == wire.Bulk(value) {
			return true
		}
	}
	return false
}

// ifLossy adds an expression of what a client may be told too where a failover loses writes.
func (m *marked) ifLossy(also string) string {
	if m.lossy {
		return "|" + also
	}
	return ""
}

const okReply = `\+OK\r\n`

// step adds one action to the pipeline.
func (m *marked) step() {
	n := m.rand.IntN(8)
	u := m.mark("u")
	key := m.key(n, "k")
	switch m.rand.IntN(20) {
	default:
		m.ask(exact(u), "ECHO", u)
	case 1, 2:
		if m.rand.IntN(30) == 0 {
			u += strings.Repeat("x", m.rand.IntN(300<<10))
		}
		m.ask(okReply, "SET", key, u).after = m.set(key, u)
	case 3, 4:
		m.ask("", "GET", key).check = func(got string) bool { return m.isValue(key, got) }
	case 5: // scattered
		words := []string{"MSET"}
		for i := range 5 {
			words = append(words, m.key(n+i, "k"), fmt.Sprint(u, i))
		}
		m.ask(okReply, words...).after = func(a answer) {
			for i := range 5 {
				m.set(words[1+2*i], words[2+2*i])(a)
			}
		}
	case 6, 7:
		words := []string{"MGET"}
		for i := range 5 {
			words = append(words, m.key(n+i, "k"))
		}
		words = append(words, m.key(n, "nothing"))
		m.ask("", words...).check = func(got string) bool {
			_, elems, err := wire.Elements(got)
			if err != nil || len(elems) != 6 {
				return false
			}
			for i, elem := range elems {
				if !m.isValue(words[1+i], elem) {
					return false
				}
			}
			return true
		}
	case 8:
		key := m.key(n, "m")
		m.ask(okReply, "MULTI")
		m.ask(`\+QUEUED\r\n`, "SET", key, u)
		m.ask(`\+QUEUED\r\n`, "GET", key)
		m.ask(`\+QUEUED\r\n`, "GET", m.key(n, "nothing"))
		m.ask(`\*3\r\n`+okReply+exact(u)+null, "EXEC")
	case 9:
		m.ask(okReply, "WATCH", key)
		m.ask("", "GET", key).check = func(got string) bool { return m.isValue(key, got) }
		m.ask(okReply, "MULTI")
		m.ask(`\+QUEUED\r\n`, "EVAL", "return {KEYS[1],ARGV[1]}", "1", key, u)
		// null: the slot has moved
		m.ask(`(\*1\r\n\*2\r\n`+exact(key)+exact(u)+"|"+null+")", "EXEC")
	case 10:
		list := m.key(n, "list"+u)
		m.ask(`:1\r\n`, "RPUSH", list, u)
		m.ask(`\*2\r\n`+exact(list)+exact(u)+m.ifLossy(null), "BLPOP", list, "0.1")
	case 11:
		m.ask(null, "BLPOP", m.key(n, "nothing"), "0.01")
	case 12, 13:
		m.subscribe(u, n)
	case 14:
		m.ask(`\*2\r\n`+exact(key)+exact(u), "EVAL", "return {KEYS[1],ARGV[1]}", "1", key, u)
	case 15:
		lock := m.key(n, "lock"+u)
		m.ask(`:[1-9]\d+\r\n`, "LOCK", lock, "600", "WAIT", "60")
		m.ask(`-FENCED .*`+regexp.QuoteMeta(u)+`.*\r\n`, "FENCE", lock, "12345", "SET", lock, "x")
		m.ask(`:1\r\n`+m.ifLossy(`:0\r\n`), "UNLOCK", lock)
		m.ask(null+m.ifLossy(`[*%]\d+\r\n(?s:.*\$4\r\nheld.*)`), "LOCKINFO", lock)
	case 16:
		m.ask("(:[1-9]\\d+\r\n|"+null+")", "LOCK", "everyone's", "60", "WAIT", "0.05")
		m.ask(`:[01]\r\n`, "UNLOCK", "everyone's")
	case 17:
		m.proto = 2 + m.rand.IntN(2)
		if m.channel != "" {
			m.proto = 3
		}
		m.ask(`(%7|\*14)\r\n(?s:.*)\$5\r\nproto\r\n:`+fmt.Sprint(m.proto)+`\r\n(?s:.*)`, "HELLO",
			fmt.Sprint(m.proto))
	case 18:
		m.count(m.key(n, "n"))
	case 19:
		m.ask(okReply, "CLIENT", "SETNAME", u).after = m.named(u)
		m.ask("", "CLIENT", "GETNAME").check = m.isName
		m.ask(`:[0-5]\r\n`, "EXISTS", m.key(n, "k"), m.key(n+1, "k"), m.key(n+2, "k"),
			m.key(n+3, "k"), m.key(n+4, "k"))
		m.ask(`:\d+\r\n`, "DBSIZE")
	}
}

// subscribe adds a subscription: for good in RESP3, with messages to itself then.
func (m *marked) subscribe(u string, n int) {
	confirmed := func(kind, ch string) string {
		return `[>*]3\r\n` + exact(kind) + exact(ch) + `:\d+\r\n`
	}
	sharded := m.rand.IntN(2) == 0
	name := map[bool]string{true: "SSUBSCRIBE", false: "SUBSCRIBE"}[sharded]
	kind := strings.ToLower(name)
	ch := m.key(n, "ch"+u)
	if m.proto == 2 {
		m.ask(confirmed(kind, ch), name, ch)
		m.ask(confirmed(strings.Replace(kind, "sub", "unsub", 1), ch),
			strings.Replace(name, "SUB", "UNSUB", 1), ch)
		return
	}
	if m.channel == "" {
		m.channel = m.key(n, "ch")
		m.ask(confirmed("subscribe", m.channel), "SUBSCRIBE", m.channel)
	}
	m.ask(`:[01]\r\n`, "PUBLISH", m.channel, u)
}

// count adds an INCR, which must not run twice.
func (m *marked) count(key string) {
	q := m.ask("", "INCR", key)
	var got int
	q.check = func(raw string) bool {
		_, err := fmt.Sscanf(raw, ":%d\r\n", &got)
		bounds := m.counts[key]
		return err == nil && (m.lossy || got > bounds[0]) && got <= bounds[1]+1
	}
	q.after = func(a answer) {
		bounds := m.counts[key]
		switch a {
		case done:
			bounds = [2]int{got, got}
		case maybeDone:
			bounds[1]++
		}
		m.counts[key] = bounds
	}
}
