//go:build linux && !race

package check_test

import (
	"iter"
	"math/rand/v2"
	"slices"

	"lockproxy/internal/test/faults/history"
)

// toyBugs are what can be wrong with a toy.
type toyBugs struct {
	besideSharers   bool // a lock is given to one alone while others share it
	oneTooMany      bool // LIMIT n lets n + 1 in
	givesHalf       bool // LOCKALL says that it has both locks when it has the first
	keepsHalf       bool // a LOCKALL that was refused keeps the first lock
	releasesHalf    bool // UNLOCKALL releases the first lock only
	ownersAreTwo    bool // another connection of the holder's owner is refused
	ownersHaveTwo   bool // another connection of the holder's owner is given one more token
	endsWithFirst   bool // an owner's session lock ends with its first connection
	outlivesAll     bool // an owner's session lock does not end with its connections, if it had many
	seesNoDeadlock  bool
	inventsDeadlock bool // it does not look who has the second lock
	farIsLast       bool // waiters of the far proxy are served when no others wait
	overtakes       bool // LOCK without WAIT is given a lock that others wait for
	readersSleep    bool // who asks to share a lock that others share waits until these are gone
}

// toy is a lock service with three proxies, in simulated time. Its history is what the clients saw.
type toy struct {
	toyBugs
	random  *rand.Rand
	now     int64 // ms
	ends    int64 // ms; when the clients begin nothing more
	token   int64
	clients []*toyClient
	holders map[string][]toyHolder
	queue   []*toyRequest // in the order in which they came
	ops     []history.Op
}

type toyHolder struct {
	op    history.Op // the LOCK
	token int64
	conns []int
	had   int // how many connections it has had
}

type toyRequest struct {
	op   history.Op
	keys []string
	by   *toyClient
	ends int64 // ms; when the wait is over
}

// toyClient is straight code that yields while it waits.
type toyClient struct {
	s         *toy
	id, proxy int
	until     int64 // ms; when it goes on. -1 while it waits for a reply
	reply     toyReply
	yield     func(struct{}) bool
}

type toyReply struct {
	outcome history.Outcome
	token   int64
	text    string
}

const toyLease, toyWait = 60_000, 4000 // ms

// toyWays is how long a message to or from each proxy takes, ms.
var toyWays = []int64{0, 0, 20}

// run lets the clients work for some time, and finish. Each beat is answered at once.
func (s *toy) run(ends int64) history.History {
	s.ends = ends
	var next []func() (struct{}, bool)
	for _, c := range s.clients {
		n, stop := iter.Pull(func(yield func(struct{}) bool) {
			defer func() { recover() }() // of sleep, at the end
			c.yield = yield
			c.behave()
		})
		defer stop()
		next = append(next, n)
	}
	for ; s.now < ends+2*toyWait; s.now++ {
		for i, c := range s.clients {
			if c.until == s.now {
				next[i]()
			}
		}
		s.serve()
		if s.now%50 == 0 {
			for proxy := range toyWays {
				s.ops = append(s.ops, history.Op{Client: 900, Kind: history.Beat, Proxy: proxy,
					Outcome: history.OK, Timeout: ms(50), Call: ms(s.now), Return: ms(s.now) + 1})
			}
		}
	}
	return history.History{Ops: s.ops}
}

func (c *toyClient) sleep(d int64) {
	c.until = c.s.now + max(d, 1)
	if !c.yield(struct{}{}) {
		panic("the end")
	}
}

// serve gives locks to those that can have them, in turn, and ends the others' waits.
func (s *toy) serve() {
	blocked := map[string]bool{}
	order := slices.Clone(s.queue)
	if s.farIsLast {
		slices.SortStableFunc(order, func(a, b *toyRequest) int { return a.op.Proxy/2 - b.op.Proxy/2 })
	}
	for _, r := range order {
		free := true
		for _, key := range r.keys {
			free = free && s.fits(r, key) && (!blocked[key] || s.owns(r, key))
		}
		switch {
		case free || s.givesHalf && len(r.keys) > 1 && s.fits(r, r.keys[0]) && s.random.IntN(5) == 0:
			s.give(r)
		case s.deadlocked(r):
			s.answer(r, toyReply{history.Refused, 0, s.cycle(r)})
		case s.now >= r.ends:
			if s.keepsHalf && len(r.keys) > 1 && s.fits(r, r.keys[0]) {
				s.token++
				s.hold(r, r.keys[0])
			}
			s.answer(r, toyReply{outcome: history.Null})
		default:
			for _, key := range r.keys {
				blocked[key] = true
			}
		}
	}
}

// fits reports whether the holders of a lock leave room for a request. Waiters do not count.
func (s *toy) fits(r *toyRequest, key string) bool {
	holders := s.holders[key]
	if s.owns(r, key) {
		return !s.ownersAreTwo
	}
	limit := r.op.Limit
	if s.oneTooMany {
		limit++
	}
	switch {
	case len(holders) == 0:
		return true
	case !r.op.Shared:
		return s.besideSharers && holders[0].op.Shared && s.random.IntN(20) == 0
	case !holders[0].op.Shared || s.readersSleep:
		return false
	}
	return r.op.Limit == 0 || len(holders) < limit
}

// owns reports whether a request is of the owner who has the lock.
func (s *toy) owns(r *toyRequest, key string) bool {
	h := s.holders[key]
	return r.op.Owner != "" && len(h) > 0 && h[0].op.Owner == r.op.Owner
}

func (s *toy) give(r *toyRequest) {
	if h := s.holders[r.keys[0]]; s.owns(r, r.keys[0]) && !s.ownersHaveTwo {
		h[0].conns = append(h[0].conns, r.op.Conn)
		h[0].had++
		s.answer(r, toyReply{history.OK, h[0].token, ""})
		return
	}
	s.token++
	for _, key := range r.keys {
		if s.fits(r, key) {
			s.hold(r, key)
		}
	}
	s.answer(r, toyReply{history.OK, s.token, ""})
}

func (s *toy) hold(r *toyRequest, key string) {
	s.holders[key] = append(s.holders[key], toyHolder{op: r.op, token: s.token,
		conns: []int{r.op.Conn}, had: 1})
}

func (s *toy) answer(r *toyRequest, reply toyReply) {
	s.queue = slices.DeleteFunc(s.queue, func(other *toyRequest) bool { return other == r })
	r.by.reply, r.by.until = reply, s.now+1+toyWays[r.op.Proxy]
}

// blocker is the owner that a request waits for, "" for none.
func (s *toy) blocker(r *toyRequest) string {
	if h := s.holders[r.keys[0]]; len(h) > 0 {
		return h[0].op.Owner
	}
	return ""
}

// deadlocked reports whether a request's owner waits for one that waits for it.
func (s *toy) deadlocked(r *toyRequest) bool {
	other := s.blocker(r)
	if s.seesNoDeadlock || r.op.Owner == "" || other == "" || other == r.op.Owner {
		return false
	}
	return slices.ContainsFunc(s.queue, func(w *toyRequest) bool {
		return w.op.Owner == other && (s.blocker(w) == r.op.Owner || s.inventsDeadlock)
	})
}

func (s *toy) cycle(r *toyRequest) string {
	other := s.blocker(r)
	i := slices.IndexFunc(s.queue, func(w *toyRequest) bool { return w.op.Owner == other })
	return `DEADLOCK "` + r.op.Owner + `" waits for "` + r.keys[0] + `", held by "` + other +
		`", who waits for "` + s.queue[i].keys[0] + `", held by "` + r.op.Owner + `": it was not acquired`
}
