//go:build linux

package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Passwords are those that a user has, and has had before: the last one is in use.
type Passwords struct {
	User string

	mu  sync.Mutex
	all []string // guarded by mu
}

// Add puts another password into use.
func (p *Passwords) Add(password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, password)
}

// Back is the password that was put into use n passwords before the last one, or the first.
func (p *Passwords) Back(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[max(0, len(p.all)-1-n)]
}

// Login is a client that logs in as a user whose passwords rotate, and uses the rights that this
// gives it.
type Login struct {
	ID        int
	Targets   []Target
	Passwords *Passwords
	Random    *rand.Rand
	Notes     Noter
	Think     time.Duration

	conn *Conn
	at   Target
	with string // the password
}

// Run logs in and leaves until ctx ends.
func (l *Login) Run(ctx context.Context) {
	for ctx.Err() == nil {
		l.at = l.Targets[l.Random.IntN(len(l.Targets))]
		if c, err := Dial(l.at.Addr); err == nil {
			l.conn = c
			l.live(ctx)
			c.Close()
		}
		pause(ctx, time.Duration(l.Random.Int64N(int64(l.Think)+1)))
	}
}

func (l *Login) live(ctx context.Context) {
	if !l.login() {
		return
	}
	for n := l.Random.IntN(20); n > 0 && ctx.Err() == nil; n-- {
		if l.Random.IntN(8) == 0 && !l.login() || !l.use() {
			return
		}
		pause(ctx, time.Duration(l.Random.Int64N(int64(2*l.Think)+1)))
	}
}

// login logs in by the password in use, or by one before.
func (l *Login) login() bool {
	l.with = l.Passwords.Back(max(0, l.Random.IntN(6)-3))
	if l.Random.IntN(2) == 0 {
		return l.ask(history.Login, "OK", "AUTH", l.Passwords.User, l.with)
	}
	return l.ask(history.Login, "", "HELLO", "3", "AUTH", l.Passwords.User, l.with)
}

// use sends a command that every user may send, by a shared connection or by one of its own.
func (l *Login) use() bool {
	key := fmt.Sprint("login:", l.ID)
	value := fmt.Sprint(l.ID, "-", l.Random.Uint32())
	switch l.Random.IntN(5) {
	case 0:
		return l.ask(history.Echo, l.Passwords.User, "ACL", "WHOAMI")
	case 1:
		return l.ask(history.Echo, "OK", "SET", key, value)
	case 2:
		return l.ask(history.Echo, "null", "BLPOP", key+":nothing", "0.01")
	case 3:
		return l.ask(history.Echo, "null\n"+anyInteger, "LOCK", key+":lock", "0.3", "SESSION") &&
			l.ask(history.Echo, ":0\n:1", "UNLOCK", key+":lock")
	default:
		return l.ask(history.Echo, "OK", "MULTI") && l.ask(history.Echo, "QUEUED", "PING") &&
			l.ask(history.Echo, "[PONG]", "EXEC")
	}
}

// ask sends a command and reports whether it was answered as wanted, which "" says of everything.
func (l *Login) ask(kind history.Kind, want string, args ...string) bool {
	op := l.Notes.Begin(history.Op{Client: l.ID, Kind: kind, Key: strings.ToLower(args[0]),
		Proxy: l.at.Proxy, Owner: l.Passwords.User, Value: l.with, Want: want})
	r, err := l.conn.Do(patience, args...)
	judge := question{want: strings.Split(want, "\n")}.judge
	if want == "" {
		judge = func(_ Reply, op *history.Op) { op.Outcome = history.OK }
	}
	l.Notes.End(op, func(op *history.Op) { setOutcome(op, r, err, judge) })
	return op.Outcome == history.OK
}
