//go:build linux

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/wire"
)

// Asker is a client that sends batches of commands each of which has one right answer, different
// from all others. It changes users, databases and protocols, and enters the states that tie a
// connection to one client.
type Asker struct {
	ID      int
	Name    string // prefix of its keys
	Targets []Target
	Users   []string // names; a password is the name. "" is the user Without
	Without string   // the user of a client that has not logged in; "" is default
	Random  *rand.Rand
	Notes   Noter
	Think   time.Duration
	Big     int // longest value, bytes
	// OneDatabase keeps it in database 0, the only one of a cluster.
	OneDatabase bool

	conn  *Conn
	at    Target
	user  string
	db    int
	count int
	// how many lists it has begun: one per connection, so that no late write comes between
	lists int
}

// question is a command and its right answers. An error of the upstream is always one.
type question struct {
	args []string
	want []string
	push string // the value, if it is an RPUSH to the list
}

// Run asks until ctx ends.
func (a *Asker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if a.conn == nil && !a.connect() {
			pause(ctx, 20*time.Millisecond+
				time.Duration(a.Random.Int64N(int64(80*time.Millisecond))))
			continue
		}
		a.batch()
		pause(ctx, time.Duration(a.Random.Int64N(int64(a.Think)+1)))
	}
	a.hangUp()
}

func (a *Asker) hangUp() {
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

// Databases is how many databases the Asker uses.
const Databases = 3

func (a *Asker) anyDatabase() int {
	if a.OneDatabase {
		return 0
	}
	return a.Random.IntN(Databases)
}

// Lists are the names of the lists that the Asker has pushed to in a database.
func (a *Asker) Lists(db int) []string {
	names := make([]string, a.lists)
	for i := range names {
		names[i] = a.list(i+1, db)
	}
	return names
}

func (a *Asker) list(n, db int) string { return fmt.Sprintf("%s:list:%d:in:%d", a.Name, n, db) }

func (a *Asker) unique() string {
	a.count++
	return fmt.Sprintf("%d-%d-%d", a.ID, a.count, a.Random.Uint32())
}

func (a *Asker) connect() bool {
	a.at = a.Targets[a.Random.IntN(len(a.Targets))]
	c, err := Dial(a.at.Addr)
	if err != nil {
		return false
	}
	a.user, a.db = a.Users[a.Random.IntN(len(a.Users))], a.anyDatabase()
	first := [][]string{{"SELECT", strconv.Itoa(a.db)}, {"SET", a.mark(), a.markIn(a.db)}}
	if a.user != "" {
		first = append([][]string{{"AUTH", a.user, a.user}}, first...)
	}
	if a.Random.IntN(2) == 0 {
		first = append([][]string{{"HELLO", "3"}}, first...)
	}
	for _, args := range first {
		if r, err := c.Do(patience, args...); err != nil || r.IsError() {
			noteFirst(a.Notes, a.ID, a.at, args[0], r, err)
			c.Close()
			return false
		}
	}
	a.conn = c
	a.lists++
	return true
}

func (a *Asker) mark() string          { return a.Name + ":mark" }
func (a *Asker) markIn(db int) string  { return fmt.Sprintf("in-%d-of-%d", db, a.ID) }
func (a *Asker) own(n int) string      { return fmt.Sprint(a.Name, ":", n) }
func (a *Asker) lockName(n int) string { return fmt.Sprint(a.Name, ":lock:", n) }

// batch sends some commands in one write and reads their answers.
func (a *Asker) batch() {
	var questions []question
	for n := 1 + a.Random.IntN(12); n > 0; n-- {
		questions = append(questions, a.question()...)
	}
	var raw []byte
	ops := make([]*history.Op, len(questions))
	for i, q := range questions {
		raw = wire.Append(raw, q.args...)
		o := history.Op{Client: a.ID, Kind: history.Echo, Proxy: a.at.Proxy,
			Key: strings.ToLower(q.args[0]), Want: strings.Join(q.want, "\n")}
		if q.push != "" {
			o.Kind, o.Key, o.Value = history.Push, q.args[1], q.push
		}
		ops[i] = a.Notes.Begin(o)
	}
	err := a.conn.Write(raw)
	for i, q := range questions {
		var r Reply
		if err == nil {
			r, err = a.conn.Receive(patience)
		}
		a.Notes.End(ops[i], func(op *history.Op) { setOutcome(op, r, err, q.judge) })
		switch {
		case err == nil && ops[i].Outcome == history.Unknown:
			// After UPSTREAM the connection closes.
			err = errors.New("an earlier question was lost")
		case err == nil && ops[i].Outcome == history.Refused:
			// The connection is not in the state that the question asked for.
			err = errors.New("an earlier question was refused")
		}
	}
	if err != nil {
		a.hangUp()
	}
}

// judge accepts the right answers only.
func (q question) judge(r Reply, op *history.Op) {
	op.Got = r.String()
	for _, want := range q.want {
		if op.Got == want || want == anyInteger && r.Type == ':' && r.Int > 0 {
			op.Outcome = history.OK
		}
	}
}

const anyInteger = ":n"

// question makes one command, or a few that belong together. Null is right where data can have been
// lost: the lists show that.
func (a *Asker) question() []question {
	v, key := a.unique(), a.own(a.Random.IntN(4))
	switch a.Random.IntN(16) {
	case 0:
		return []question{{args: []string{"ECHO", v}, want: []string{v}}}
	case 1:
		return []question{{args: []string{"PING", v}, want: []string{v}}}
	case 2, 3:
		v += strings.Repeat("x", a.Random.IntN(a.Big+1)/(1+a.Random.IntN(50)))
		return []question{{args: []string{"SET", key, v}, want: []string{"OK"}},
			{args: []string{"GET", key}, want: []string{v, "null"}}}
	case 4, 5, 6, 7:
		return []question{{args: []string{"RPUSH", a.list(a.lists, a.db), v},
			want: []string{anyInteger}, push: v}}
	case 8:
		want := a.user
		if want == "" {
			want = cmp.Or(a.Without, "default")
		}
		return []question{{args: []string{"ACL", "WHOAMI"}, want: []string{want}}}
	case 9:
		a.db = a.anyDatabase()
		return []question{
			{args: []string{"SELECT", strconv.Itoa(a.db)}, want: []string{"OK"}},
			{args: []string{"SET", a.mark(), a.markIn(a.db)}, want: []string{"OK"}},
			{args: []string{"GET", a.mark()}, want: []string{a.markIn(a.db), "null"}},
		}
	case 10:
		return []question{{args: []string{"GET", a.mark()}, want: []string{a.markIn(a.db), "null"}}}
	case 11:
		return []question{
			{args: []string{"MULTI"}, want: []string{"OK"}},
			{args: []string{"SET", key, v}, want: []string{"QUEUED"}},
			{args: []string{"GET", key}, want: []string{"QUEUED"}},
			{args: []string{"EXEC"}, want: []string{"[OK " + v + "]"}},
		}
	case 12:
		return []question{{args: []string{"EVAL", "return ARGV[1]", "0", v}, want: []string{v}}}
	case 13:
		name := a.lockName(a.Random.IntN(2))
		return []question{
			{args: []string{"LOCK", name, "0.5"}, want: []string{anyInteger, "null"}},
			{args: []string{"ECHO", v}, want: []string{v}},
			{args: []string{"UNLOCK", name}, want: []string{":1", ":0"}},
		}
	case 14:
		return []question{
			{args: []string{"CLIENT", "SETNAME", v}, want: []string{"OK"}},
			{args: []string{"CLIENT", "GETNAME"}, want: []string{v}},
		}
	default:
		return []question{{args: []string{"BLPOP", key + ":nothing", "0.01"},
			want: []string{"null"}}}
	}
}
