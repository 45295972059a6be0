package passthrough

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// clientEnd is a net.Conn that keeps what is written to it.
type clientEnd struct {
	net.Conn
	got    bytes.Buffer
	closed bool
}

func (c *clientEnd) Write(p []byte) (int, error)      { return c.got.Write(p) }
func (c *clientEnd) Close() error                     { c.closed = true; return nil }
func (c *clientEnd) SetWriteDeadline(time.Time) error { return nil }
func (c *clientEnd) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// unplugged is a Pipe without an upstream: the test says what it answers.
type unplugged struct {
	*Pipe
	far *clientEnd
}

func newUnplugged(initial upstream.Identity) *unplugged {
	client := &clientEnd{}
	lost := func(error) []byte { return []byte("-UPSTREAM lost\r\n") }
	lanes := newPool(&upstream.Upstream{Addr: "redis", Initial: initial}, 0)
	u := &unplugged{Pipe: NewPipe(lanes, client, nil, lost), far: client}
	u.c.home = &home{c: &u.c, connReader: connReader{rw: nowhere{}}}
	u.c.pending.Admitted = initial.LoggedIn // as where a home is opened
	return u
}

// nowhere takes what is sent, and answers nothing.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Read([]byte) (int, error)    { return 0, io.EOF }

// feed lets data come from the upstream.
func (u *unplugged) feed(data []byte) error {
	defer u.c.out.wait()
	return u.c.home.Consume(data, nil)
}

// answer lets the upstream say text, all at once.
func (u *unplugged) answer(t testing.TB, text string) {
	t.Helper()
	if err := u.feed([]byte(text)); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// took is what the client has been given since the last call.
func (u *unplugged) took() string {
	u.c.out.wait()
	text := u.far.got.String()
	u.far.got.Reset()
	return text
}

// isClosed reports whether the client has been closed.
func (u *unplugged) isClosed() bool {
	u.c.out.wait()
	return u.far.closed
}

// outstanding reports whether the client is owed anything.
func (u *unplugged) outstanding() bool { return !u.c.pending.empty() }

func (u *unplugged) homeLost(err error, withinReply bool) {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	u.c.homeLostLocked(err, withinReply)
}

// ask queues one request of each effect.
func (u *unplugged) ask(effects ...commands.Effect) {
	for _, e := range effects {
		u.Relay(Request{Expect: Expect{Effect: e, Count: 1}}, nil)
	}
}

// simRedis is a naive model of one connection of Redis, with two outputs: what Redis sends when the
// proxy has taken out CLIENT REPLY, and what the client should see.
type simRedis struct {
	initial            upstream.Identity
	upstream.Identity  // as State's
	inMulti, aborted   bool
	queue              []simCommand
	channels, patterns map[string]bool
	shard              map[string]bool
	monitor            bool
	off, skip          bool
	up, client         []byte
	oob                int // messages sent unasked so far
}

// simCommand is one request, its reply if its sender decides it, and what it asks for.
type simCommand struct {
	effect commands.Effect
	// for NoEffect, and where not empty, an error in place of the usual reply
	reply    string
	change   *upstream.Identity // for Select, Auth, Hello
	channels []string           // for (un)subscribes
}

func newSimRedis(initial upstream.Identity) *simRedis {
	s := &simRedis{initial: initial}
	s.reset()
	return s
}

func (s *simRedis) reset() {
	s.Identity = s.initial
	s.inMulti, s.aborted, s.queue, s.monitor, s.off = false, false, nil, false, false
	s.channels, s.patterns, s.shard = map[string]bool{}, map[string]bool{}, map[string]bool{}
}

func (s *simRedis) subscribed() bool {
	return s.Proto == 2 && len(s.channels)+len(s.patterns)+len(s.shard) > 0
}

// says is a reply: the proxy always gets it, and the client unless it has asked for silence.
func (s *simRedis) says(reply string) {
	s.up = append(s.up, reply...)
	if !s.off && !s.skip {
		s.client = append(s.client, reply...)
	}
}

// sends is what Redis sends even to a client that has asked for silence.
func (s *simRedis) sends(text string) {
	s.up = append(s.up, text...)
	s.client = append(s.client, text...)
}

// locally is a reply of the proxy's own, in its turn.
func (s *simRedis) locally(text string) {
	if !s.off && !s.skip {
		s.client = append(s.client, text...)
	}
	s.skip = false
}

func (s *simRedis) run(c simCommand) {
	next := false // CLIENT REPLY SKIP is about the next command
	defer func() { s.skip = next }()
	if s.subscribed() && !c.effect.Subscribes() && c.effect != commands.Reset {
		s.says("-ERR Can't execute that: only " +
			"(P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET " +
			"are allowed in this context\r\n")
		return
	}
	if s.inMulti && !slices.Contains([]commands.Effect{commands.Multi, commands.Exec,
		commands.Discard, commands.Reset}, c.effect) {
		if strings.HasPrefix(c.reply, "-") {
			s.aborted = true
			s.says(c.reply)
			return
		}
		s.queue = append(s.queue, c)
		s.says("+QUEUED\r\n")
		return
	}
	if c.effect == commands.Monitor && s.monitor {
		return // Redis says nothing to that
	}
	if c.reply != "" && c.effect != commands.Exec {
		s.says(c.reply)
		return
	}
	switch c.effect {
	case commands.Multi:
		if s.inMulti {
			s.says("-ERR MULTI calls can not be nested\r\n")
			return
		}
		s.inMulti = true
		s.says("+OK\r\n")
	case commands.Exec:
		s.exec(c)
	case commands.Discard:
		if !s.inMulti {
			s.says("-ERR DISCARD without MULTI\r\n")
			return
		}
		s.inMulti, s.aborted, s.queue = false, false, nil
		s.says("+OK\r\n")
	case commands.Select, commands.Auth, commands.Hello:
		s.become(c)
		s.says(s.welcome(c))
	case commands.Reset:
		s.reset()
		s.says("+RESET\r\n")
	case commands.Monitor:
		s.monitor = true
		s.says("+OK\r\n")
	case commands.ReplyOn:
		s.off, s.skip = false, false
		s.says("+OK\r\n")
	case commands.ReplyOff:
		s.off = true
		s.up = append(s.up, "+OK\r\n"...)
	case commands.ReplySkip:
		next = !s.off
		s.up = append(s.up, "+OK\r\n"...)
	default:
		s.subscribe(c)
	}
}

func (s *simRedis) exec(c simCommand) {
	switch {
	case !s.inMulti:
		s.says("-ERR EXEC without MULTI\r\n")
	case s.aborted:
		s.says("-EXECABORT Transaction discarded because of previous errors.\r\n")
	case c.reply != "": // a watched key has changed
		s.says(c.reply)
	default:
		reply := fmt.Sprintf("*%d\r\n", len(s.queue))
		for _, q := range s.queue {
			if q.effect == commands.NoEffect {
				reply += q.reply
				continue
			}
			s.become(q)
			reply += s.welcome(q)
		}
		s.says(reply)
	}
	s.inMulti, s.aborted, s.queue = false, false, nil
}

// become makes c's change true.
func (s *simRedis) become(c simCommand) {
	if c.effect == commands.Select {
		s.DB = c.change.DB
	}
	if c.effect == commands.Hello && c.change.Proto != 0 {
		s.Proto = c.change.Proto
	}
	if c.change.LoggedIn {
		s.User, s.Password, s.LoggedIn = c.change.User, c.change.Password, true
	}
}

// welcome is the reply to a command that has changed the connection.
func (s *simRedis) welcome(c simCommand) string {
	switch {
	case c.effect != commands.Hello:
		return "+OK\r\n"
	case s.Proto == 3:
		return "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
	}
	return "*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n"
}

func (s *simRedis) subscribe(c simCommand) {
	names, set, count := map[commands.Effect]string{
		commands.Subscribe: "subscribe", commands.PSubscribe: "psubscribe",
		commands.SSubscribe:  "ssubscribe",
		commands.Unsubscribe: "unsubscribe", commands.PUnsubscribe: "punsubscribe",
		commands.SUnsubscribe: "sunsubscribe",
	}, s.channels, func() int { return len(s.channels) + len(s.patterns) }
	switch c.effect {
	case commands.PSubscribe, commands.PUnsubscribe:
		set = s.patterns
	case commands.SSubscribe, commands.SUnsubscribe:
		set, count = s.shard, func() int { return len(s.shard) }
	}
	on := c.effect <= commands.SSubscribe
	list := c.channels
	if len(list) == 0 {
		for name := range set {
			list = append(list, name)
		}
	}
	confirm := func(channel string) {
		s.sends(s.push(fmt.Sprintf("3\r\n$%d\r\n%s\r\n%s:%d\r\n", len(names[c.effect]),
			names[c.effect], channel, count())))
	}
	for _, name := range list {
		if on {
			set[name] = true
		} else {
			delete(set, name)
		}
		confirm(fmt.Sprintf("$%d\r\n%s\r\n", len(name), name))
	}
	if len(list) == 0 {
		confirm("$-1\r\n")
	}
}

// push gives an out-of-band array its type.
func (s *simRedis) push(text string) string {
	if s.Proto == 3 {
		return ">" + text
	}
	return "*" + text
}

// unasked sends something that answers no request, if there is anything to send: a message, a line
// of MONITOR's feed, or an invalidation. It is marked so that the test can tell it.
func (s *simRedis) unasked() {
	mark := fmt.Sprintf("oob-%06d", s.oob)
	s.oob++
	switch {
	case len(s.channels) > 0:
		s.sends(s.push("3\r\n$7\r\nmessage\r\n$1\r\na\r\n$10\r\n" + mark + "\r\n"))
	case len(s.patterns) > 0:
		s.sends(s.push("4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\na\r\n$10\r\n" + mark + "\r\n"))
	case len(s.shard) > 0:
		s.sends(s.push("3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$10\r\n" + mark + "\r\n"))
	case s.monitor && s.skip: // whether the next command comes before it decides whether it is seen
	case s.monitor: // Redis counts the feed among the replies
		s.says("+1700000000.123456 [0 127.0.0.1:5000] \"" + mark + "\"\r\n")
	case s.Proto == 3:
		s.sends(">2\r\n$10\r\ninvalidate\r\n*1\r\n$10\r\n" + mark + "\r\n")
	}
}

// separate tells replies from what came unasked. Their places among each other depend on when the
// bytes arrive.
func separate(t testing.TB, stream []byte) (replies, unasked []string) {
	t.Helper()
	for in := bufio.NewReader(bytes.NewReader(stream)); ; {
		raw, err := wire.ReadReply(in, wire.Either)
		switch {
		case err == io.EOF && raw == "":
			return replies, unasked
		case err != nil:
			t.Fatalf("not whole replies: %q, %v", stream, err)
		case strings.Contains(raw, "oob-"):
			unasked = append(unasked, raw)
		default:
			replies = append(replies, raw)
		}
	}
}
