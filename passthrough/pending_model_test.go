//go:build !race

package passthrough

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// Any requests, in any order, answered in any pieces: the client gets what it would get from Redis
// itself, the proxy's own replies in their turn, and the State is Redis's.
func TestPendingAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		initial := upstream.Identity{Proto: 2}
		if rapid.Bool().Draw(rt, "login") {
			initial = upstream.Identity{Proto: 2, User: "u", Password: "p", LoggedIn: true, DB: 1}
		}
		m := &queueMachine{t: t, rt: rt, unplugged: newUnplugged(initial),
			redis: newSimRedis(initial)}
		rt.Repeat(map[string]func(*rapid.T){
			"relay": m.relay, "relay again": m.relay, "relay more": m.relay, "unasked": m.unasked,
			"arrive": m.arrive,
			"local":  m.local, "lock": m.lock, "barrier": m.barrier, "": m.check,
		})
		m.arriveAll()
		m.checkAll()
	})
}

type queueMachine struct {
	t  *testing.T
	rt *rapid.T
	*unplugged
	redis   *simRedis
	arrived int // bytes of redis.up that have come
	locals  int
	markers []*Answer
}

func (m *queueMachine) relay(rt *rapid.T) {
	c := anyCommand(rt, m.redis.inMulti)
	m.redis.run(c)
	m.Relay(Request{Expect: Expect{Effect: c.effect, Count: len(c.channels), Change: c.change}}, nil)
	if c.effect == commands.Reset {
		m.afterReset()
	}
}

// afterReset does as a session does behind a RESET.
func (m *queueMachine) afterReset() {
	m.arriveAll()
	login := m.redis.initial.Login()
	for range login {
		m.redis.up = append(m.redis.up, "+OK\r\n"...)
	}
	if len(login) == 0 {
		m.redis.up = append(m.redis.up, "*2\r\n$5\r\nproto\r\n:2\r\n"...)
	}
	m.Flush(nil)
}

func anyCommand(rt *rapid.T, inMulti bool) (c simCommand) {
	plain := []string{
		"+PONG\r\n", ":1\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n", "-ERR no\r\n",
		"-WRONGTYPE x\r\n",
		// Data that looks like something else.
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
		"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n", "$3\r\n+OK\r\n", "*1\r\n$6\r\nQUEUED\r\n",
	}
	effects := []commands.Effect{commands.Multi, commands.Exec, commands.Exec, commands.Discard,
		commands.Select, commands.Hello, commands.Reset}
	if !inMulti { // there these have other forms, which are tested below
		effects = append(effects, commands.Subscribe, commands.PSubscribe, commands.SSubscribe,
			commands.Unsubscribe, commands.PUnsubscribe, commands.SUnsubscribe,
			commands.Auth, commands.Monitor, commands.ReplyOn, commands.ReplyOn, commands.ReplyOff,
			commands.ReplySkip, commands.ReplySkip)
	}
	if rapid.Bool().Draw(rt, "plain") {
		c.reply = rapid.SampledFrom(plain).Draw(rt, "reply")
		return c
	}
	c.effect = rapid.SampledFrom(effects).Draw(rt, "effect")
	denied := rapid.IntRange(0, 4).Draw(rt, "denied") == 0
	switch c.effect {
	case commands.Select:
		c.change = &upstream.Identity{DB: rapid.IntRange(0, 15).Draw(rt, "db")}
	case commands.Auth:
		c.change = &upstream.Identity{User: rapid.SampledFrom([]string{"", "bob"}).Draw(rt, "user"),
			Password: "pw", LoggedIn: true}
	case commands.Hello:
		c.change = &upstream.Identity{Proto: rapid.SampledFrom([]int{0, 2, 3}).Draw(rt, "proto")}
		if !inMulti && rapid.Bool().Draw(rt, "with auth") {
			c.change.User, c.change.Password, c.change.LoggedIn = "eve", "pw", true
		}
	case commands.Subscribe, commands.PSubscribe, commands.SSubscribe:
		c.channels = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 4).Draw(rt,
			"channels")
	case commands.Unsubscribe, commands.PUnsubscribe, commands.SUnsubscribe:
		c.channels = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(rt,
			"channels")
	case commands.Exec:
		if denied {
			c.reply = rapid.SampledFrom([]string{"*-1\r\n", "_\r\n"}).Draw(rt, "changed")
		}
		return c
	case commands.Multi, commands.Discard, commands.Reset, commands.ReplyOn, commands.ReplyOff,
		commands.ReplySkip:
		return c
	}
	if denied {
		c.reply = "-NOPERM this user has no permissions\r\n"
	}
	return c
}

func (m *queueMachine) unasked(*rapid.T) { m.redis.unasked() }

// arrive lets some of what Redis has sent come.
func (m *queueMachine) arrive(rt *rapid.T) {
	waiting := len(m.redis.up) - m.arrived
	if waiting > 0 {
		few, any := rapid.IntRange(1, min(waiting, 8)), rapid.IntRange(1, waiting)
		m.receive(rapid.OneOf(few, any).Draw(rt, "bytes"))
	}
}

func (m *queueMachine) arriveAll() { m.receive(len(m.redis.up) - m.arrived) }

func (m *queueMachine) receive(n int) {
	// A copy: nothing may rely on what is behind.
	piece := bytes.Clone(m.redis.up[m.arrived : m.arrived+n])
	m.arrived += n
	if err := m.feed(piece); err != nil {
		m.rt.Fatalf("%q: %v", piece, err)
	}
}

// local is a reply of the proxy's own that needs nothing from upstream.
func (m *queueMachine) local(*rapid.T) {
	text := fmt.Sprintf("+local %d\r\n", m.locals)
	m.locals++
	m.redis.locally(text)
	m.Reply([]byte(text), InTurn)
}

func (m *queueMachine) barrier(*rapid.T) { m.markers = append(m.markers, m.Barrier()) }

// lock does as a session does for a lock command: it waits until the state is known, then either
// asks for itself, or refuses.
func (m *queueMachine) lock(rt *rapid.T) {
	if _, settled := m.State(); !settled {
		answer := m.Barrier()
		m.arriveAll()
		if !answer.Arrived() {
			rt.Fatal("the barrier holds after all has been answered")
		}
	}
	state, _ := m.State()
	m.sameState(rt, state)
	text := fmt.Sprintf("+lock %d\r\n", m.locals)
	m.locals++
	switch {
	case state.Has(InMulti):
		m.redis.aborted = true
		m.redis.up = append(m.redis.up, "-ERR wrong number of arguments for 'get' command\r\n"...)
		m.redis.locally(text)
		m.Relay(Request{Instead: []byte(text)}, nil)
	case state.Subscribed():
		m.redis.locally(text)
		m.Reply([]byte(text), InTurn)
	default:
		answer := m.Do(nil, []byte(nil))[0]
		if m.redis.monitor || m.redis.Proto == 3 {
			m.redis.unasked()
		}
		want := rapid.SampledFrom([]string{":5\r\n", "+OK\r\n", "*2\r\n:5\r\n:0\r\n", "$-1\r\n",
			"-NOSCRIPT none\r\n", "*1\r\n$9\r\nsubscribe\r\n"}).Draw(rt, "script's")
		m.redis.up = append(m.redis.up, want...)
		m.arriveAll()
		if !answer.Arrived() {
			rt.Fatal("the proxy's own request is not answered")
		}
		if string(answer.raw) != want {
			rt.Fatalf("the proxy's own request: got %q, want %q", answer.raw, want)
		}
		m.redis.locally(text)
		m.Reply([]byte(text), InTurn)
	}
}

// check holds at any time: what has come is a beginning of what should come.
func (m *queueMachine) check(rt *rapid.T) {
	// Replies can be cut anywhere, so only the total is looked at here.
	m.c.out.wait()
	if got, most := m.far.got.Len(), len(m.redis.client); got > most {
		rt.Fatalf("the client got %d bytes of %d:\n%q\n%q", got, most, m.far.got.Bytes(),
			m.redis.client)
	}
}

func (m *queueMachine) checkAll() {
	m.c.out.wait()
	got, gotUnasked := separate(m.t, m.far.got.Bytes())
	want, wantUnasked := separate(m.t, m.redis.client)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotUnasked, wantUnasked) {
		m.rt.Fatalf("the client got\n%q\n%q\nwant\n%q\n%q", got, gotUnasked, want, wantUnasked)
	}
	for i, marker := range m.markers {
		if !marker.Arrived() {
			m.rt.Fatalf("barrier %d holds after all has been answered", i)
		}
	}
	state, settled := m.State()
	if !settled || m.outstanding() {
		m.rt.Fatalf("settled %v, outstanding %v after all has been answered", settled,
			m.outstanding())
	}
	m.sameState(m.rt, state)
}

func (m *queueMachine) sameState(rt *rapid.T, state State) {
	r := m.redis
	if state.Identity != r.Identity || state.Has(InMulti) != r.inMulti ||
		state.Subscribed() != r.subscribed() || state.Has(Untracked|Streaming) {
		rt.Fatalf("state %+v, Redis is %+v", state, r)
	}
	plain := !r.inMulti && !r.monitor && !r.off && !r.skip &&
		len(r.channels)+len(r.patterns)+len(r.shard) == 0
	// SKIP is used up by a reply that has no effect
	if state.Plain() != plain && !m.outstanding() {
		rt.Fatalf("plain %v: %+v; Redis is %+v", state.Plain(), state, r)
	}
}
