//go:build linux && !race

package check_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// behave is what each client does, by its number.
func (c *toyClient) behave() {
	for c.s.now < c.s.ends {
		switch {
		case c.id < 20: // it shares a lock, up to a limit, or has it alone
			c.shares()
		case c.id < 30: // it takes two locks together, or one of them
			c.takesAll()
		case c.id < 40: // it takes one lock by many connections
			c.takesByMany()
		case c.id < 50: // it takes one lock after the other, in any order
			c.takesTwo()
		case c.id < 60: // it takes one lock, again and again
			c.takes(history.Op{Key: "busy", Wait: true}, 5)
		default: // with and without WAIT
			c.takes(history.Op{Key: "slow", Wait: c.id > 61}, 300)
		}
		c.sleep(c.s.random.Int64N(20))
	}
	c.until = -1
}

// lock asks for locks, as o says.
func (c *toyClient) lock(o history.Op, keys ...string) int64 {
	s := c.s
	o.Client, o.Proxy, o.Kind, o.Timeout = c.id, c.proxy, history.Lock, ms(toyLease)
	o.Call = ms(s.now)
	at := s.begin(o, keys)
	c.sleep(toyWays[c.proxy])
	r := &toyRequest{op: o, keys: keys, by: c, ends: s.now}
	if o.Wait {
		r.ends = s.now + toyWait
	}
	s.queue = append(s.queue, r)
	if !o.Wait && s.overtakes {
		r.ends += 100
		s.queue = slices.Insert(s.queue[:len(s.queue)-1], 0, r)
	}
	if c.until <= s.now {
		c.until = -1
	}
	c.yielded()
	for i := range keys {
		o := &s.ops[at+i]
		o.Return, o.Outcome, o.Result, o.Got = ms(s.now), c.reply.outcome, c.reply.token, c.reply.text
	}
	return c.reply.token
}

func (c *toyClient) yielded() {
	if !c.yield(struct{}{}) {
		panic("the end")
	}
}

// unlock releases locks of one token.
func (c *toyClient) unlock(token int64, keys ...string) {
	s := c.s
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Unlock, Token: token, Call: ms(s.now)}
	at := s.begin(o, keys)
	c.sleep(toyWays[c.proxy])
	released := 0
	for i, key := range keys {
		if i > 0 && s.releasesHalf {
			break
		}
		before := len(s.holders[key])
		s.holders[key] = slices.DeleteFunc(s.holders[key], func(h toyHolder) bool {
			return h.token == token
		})
		released += before - len(s.holders[key])
	}
	c.sleep(toyWays[c.proxy])
	for i := range keys {
		o := &s.ops[at+i]
		o.Return, o.Outcome, o.Result = ms(s.now), history.OK, int64(released/len(keys))
		if released == 1 && len(keys) == 2 {
			o.Return, o.Left, o.Outcome, o.Got = 0, ms(s.now), history.Unknown, ":1"
		}
	}
}

// begin records an operation at each lock that it is about, and returns where.
func (s *toy) begin(o history.Op, keys []string) (at int) {
	at = len(s.ops)
	for i, key := range keys {
		o.Key = key
		if len(keys) > 1 {
			o.With = keys[1-i]
		}
		s.ops = append(s.ops, o)
	}
	return at
}

func (c *toyClient) takes(o history.Op, hold int64) {
	if token := c.lock(o, o.Key); token > 0 {
		c.sleep(1 + c.s.random.Int64N(hold))
		c.unlock(token, o.Key)
	}
}

func (c *toyClient) shares() {
	if c.id >= 8 {
		c.takes(history.Op{Key: "readers", Wait: true, Shared: true}, 1500)
		return
	}
	o := history.Op{Key: "shared", Wait: true, Shared: c.id%4 > 0}
	if c.id%4 == 3 {
		o.Limit = 2
	}
	c.takes(o, 20)
}

func (c *toyClient) takesAll() {
	o := history.Op{Wait: true}
	if c.id%2 == 0 {
		o.Key = []string{"one", "other"}[c.id/2%2]
		c.takes(o, 30)
		return
	}
	o.Wait = c.id%4 == 1
	if token := c.lock(o, "one", "other"); token > 0 {
		c.sleep(1 + c.s.random.Int64N(20))
		c.unlock(token, "one", "other")
	}
}

func (c *toyClient) takesByMany() {
	o := history.Op{Owner: fmt.Sprint("many-", c.id), Session: true, Wait: true}
	token, conns := int64(0), 9+c.id%3
	for o.Conn = range conns {
		given := c.lock(o, "many")
		if given == 0 {
			break
		}
		token = given
	}
	for _, conn := range c.s.random.Perm(conns) {
		c.sleep(250)
		c.s.ops = append(c.s.ops, history.Op{Client: c.id, Conn: conn, Proxy: c.proxy,
			Kind: history.Lost, Key: "many", Token: token, Session: true, Call: ms(c.s.now)})
		c.s.closed(c.id, conn)
	}
	c.sleep(2000) // long enough for others to miss the lock
}

// closed ends what a connection had.
func (s *toy) closed(client, conn int) {
	s.holders["many"] = slices.DeleteFunc(s.holders["many"], func(h toyHolder) bool {
		i := slices.Index(h.conns, conn)
		if h.op.Client != client || i < 0 {
			return false
		}
		copy(h.conns[i:], h.conns[i+1:])
		h.conns[len(h.conns)-1] = -1
		left := slices.ContainsFunc(h.conns, func(n int) bool { return n >= 0 })
		return (!left || s.endsWithFirst) && !(s.outlivesAll && h.had > 8)
	})
}

func (c *toyClient) takesTwo() {
	first := c.s.random.IntN(2)
	keys := []string{"left", "right", "left"}[first : first+2]
	o := history.Op{Owner: fmt.Sprint("owner-", c.id), Wait: true}
	a := c.lock(o, keys[0])
	if a == 0 {
		return
	}
	c.sleep(c.s.random.Int64N(20))
	if b := c.lock(o, keys[1]); b > 0 {
		c.unlock(b, keys[1])
	}
	c.unlock(a, keys[0])
}

// newToy has clients of each kind.
func newToy(b toyBugs, seed uint64) *toy {
	s := &toy{toyBugs: b, random: rand.New(rand.NewPCG(seed, 0)), token: 1000,
		holders: map[string][]toyHolder{}}
	for _, kind := range []struct{ first, count int }{{0, 11}, {20, 6}, {30, 3}, {40, 4}, {50, 6},
		{60, 6}} {
		for i := range kind.count {
			s.clients = append(s.clients, &toyClient{s: s, id: kind.first + i, proxy: i % 3,
				until: int64(i)})
		}
	}
	return s
}

// The checker names each bug of a toy, in every history, and finds nothing in one without a bug.
func TestBrokenToysAreCaught(t *testing.T) {
	for _, c := range []struct {
		name string
		bugs toyBugs
		rule string
	}{
		{"no bug", toyBugs{}, ""},
		{"alone next to sharers", toyBugs{besideSharers: true}, "exclusion"},
		{"one more than the limit", toyBugs{oneTooMany: true}, "limit"},
		{"LOCKALL gives half", toyBugs{givesHalf: true}, "exclusion"},
		{"a refused LOCKALL keeps half", toyBugs{keepsHalf: true}, "late"},
		{"UNLOCKALL releases half", toyBugs{releasesHalf: true}, "all"},
		{"an owner is refused its own lock", toyBugs{ownersAreTwo: true}, "owner"},
		{"an owner has two tokens", toyBugs{ownersHaveTwo: true}, "owner"},
		{"a lock ends with the first connection", toyBugs{endsWithFirst: true}, "exclusion"},
		{"a lock outlives its connections", toyBugs{outlivesAll: true}, "late"},
		{"a deadlock is not told", toyBugs{seesNoDeadlock: true}, "deadlock"},
		{"a deadlock that is none", toyBugs{inventsDeadlock: true}, "deadlock"},
		{"the far proxy has less than its share", toyBugs{farIsLast: true}, "share"},
		{"LOCK without WAIT overtakes", toyBugs{overtakes: true}, "overtaken"},
		{"readers wait for readers", toyBugs{readersSleep: true}, "late"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(1) {
				report := check.Check(newToy(c.bugs, seed).run(2500), check.DefaultBounds())
				found := map[string]string{}
				for _, v := range report.Violations {
					found[v.Rule] = v.Text
				}
				if c.rule == "" && len(found) > 0 || c.rule != "" && found[c.rule] == "" {
					t.Errorf("seed %d: found %v, undecided %v", seed, found, report.Undecided)
				}
				for _, rule := range []string{"exclusion", "limit", "late", "deadlock", "owner",
					"share"} {
					if c.rule == "" && report.Checked[rule] < 2 {
						t.Errorf("seed %d: rule %q was not applied: %v", seed, rule, report.Checked)
					}
				}
			}
		})
	}
}
