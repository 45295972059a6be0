//go:build !race

package lockcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// modelHolder is a holder of a modelLock.
type modelHolder struct {
	script.Request
	token   int64
	expires int64    // ms
	asked   []string // the connections that were given the token, the last first
}

// modelLock is a lock by the rules of the contract, without the scripts.
type modelLock struct {
	now     time.Time
	last    int64         // token
	holders []modelHolder // of an exclusive lock one
}

// pass lets time pass, and removes expired holders.
func (m *modelLock) pass(d time.Duration) {
	m.now = m.now.Add(d)
	m.holders = slices.DeleteFunc(m.holders, func(h modelHolder) bool {
		return m.now.UnixMilli() >= h.expires
	})
}

func (m *modelLock) shared() bool { return len(m.holders) > 0 && m.holders[0].Shared }

// lock is a LOCK by the first of requests, which may be granted to those that follow it, too.
func (m *modelLock) lock(requests []script.Request) (tokens []int64) {
	r := requests[0]
	if len(m.holders) > 0 && m.shared() != r.Shared && !(r.Shared && m.ownerHolds(r)) {
		return nil
	}
	for i := range m.holders {
		h := &m.holders[i]
		if r.Owner != "" && r.Owner == h.Owner ||
			h.asked[0] == r.Connection && h.Number == r.Number {
			h.expires = max(h.expires, m.now.Add(r.Timeout).UnixMilli())
			h.asked = append([]string{r.Connection},
				slices.DeleteFunc(h.asked, func(c string) bool { return c == r.Connection })...)
			h.Number = r.Number
			return []int64{h.token}
		}
	}
	for _, r := range requests {
		if !m.fits(r) {
			break
		}
		m.last = max(m.now.UnixMicro(), m.last+1)
		tokens = append(tokens, m.last)
		m.holders = append(m.holders, modelHolder{r, m.last,
			m.now.Add(r.Timeout).UnixMilli(), []string{r.Connection}})
	}
	return tokens
}

func (m *modelLock) ownerHolds(r script.Request) bool {
	return r.Owner != "" && m.holders[0].Owner == r.Owner
}

// fits reports whether the lock can be given to a request, too.
func (m *modelLock) fits(r script.Request) bool {
	if len(m.holders) == 0 {
		return true
	}
	same := func(h modelHolder) bool {
		return r.Owner != "" && h.Owner == r.Owner || h.Connection == r.Connection &&
			h.Number == r.Number
	}
	return m.shared() && r.Shared && (r.Limit == 0 || int64(len(m.holders)) < r.Limit) &&
		!slices.ContainsFunc(m.holders, same)
}

// unlock is an UNLOCK, with the waiters of this proxy. It returns what unlock.lua does: whether it
// has released the lock, and the tokens of the waiters that have it now.
func (m *modelLock) unlock(
	p script.Proof, waiters []script.Request,
) (released int64, tokens []int64) {
	found := -1
	for i, h := range m.holders {
		if p.Kind == "connection" && h.asked[0] == p.Value ||
			p.Kind == "token" && strconv.FormatInt(h.token, 10) == p.Value {
			found = i // the last of a connection's
		}
	}
	switch {
	case p.Kind == "force" && len(m.holders) > 0:
		m.holders = nil
	case found >= 0:
		m.holders = slices.Delete(m.holders, found, found+1)
	default:
		return 0, nil
	}
	released = int64(1 + min(len(m.holders), 1))
	if len(waiters) > 0 && m.fits(waiters[0]) {
		tokens = m.lock(waiters)
	}
	return released, tokens
}

func (m *modelLock) relock(token int64, timeout time.Duration) int64 {
	for i := range m.holders {
		if m.holders[i].token == token {
			m.holders[i].expires = m.now.Add(timeout).UnixMilli()
			return 1
		}
	}
	return 0
}

// Whatever clients do with shared, limited and exclusive locks, the scripts give the same answers
// as the model, and have the same holders.
func TestSharedLocksProperty(t *testing.T) {
	client, l := startScripts(t)
	recorded := map[*script.Script]*redis.Script{}
	for _, s := range []*script.Script{script.LockScript, script.UnlockScript, script.RelockScript, script.InfoScript} {
		recorded[s] = redis.NewScript(strings.Replace(recordedRun, "%s", s.Source, 1))
	}
	id := names.Lock{Key: "job"}
	seen := map[string]int{}
	history := func(t *rapid.T) {
		ctx := t.Context()
		client.FlushAll(ctx)
		m := &modelLock{now: time.Unix(1_790_000_000, 0)}
		number, lastTokens := 0, []int64{1}
		// run is a script now, as numbers: a list, or none.
		run := func(c script.Call) []int64 {
			value, _ := client.Get(ctx, id.Key).Int64()
			if value != 0 && m.now.UnixMilli() >= value { // its TTL is over
				client.Del(ctx, id.Key)
			}
			st := storedLock{now: m.now, ttl: value - m.now.UnixMilli()}
			args := []any{}
			for _, arg := range c.Args {
				args = append(args, arg)
			}
			got, err := recorded[c.Script].Run(ctx, client, c.Keys[:],
				append(args, st.circumstances()...)...).Slice()
			if err != nil {
				t.Fatal(err)
			}
			var numbers []int64
			switch reply := got[0].(type) {
			case int64:
				return c.Script.ExpandShortReply(reply)
			case []any:
				for _, v := range reply {
					n, _ := v.(int64)
					numbers = append(numbers, n)
				}
			case string:
				t.Fatalf("%s %q: %s", c.Script.Name, c.Args, reply)
			}
			return numbers
		}
		again := false // a queue has no request twice
		draw := func() script.Request {
			r := drawRequest(t, id.Key)
			number++
			r.Number = strconv.Itoa(number)
			r.Timeout = time.Duration(rapid.IntRange(1, 900).Draw(t, "ms")) * time.Millisecond
			r.Connection = fmt.Sprintf("p-%d", rapid.IntRange(1, 5).Draw(t, "connection"))
			r.Shared, r.Limit = false, 0
			limits := []int64{0, 0, 0, 4, 3, 1, -1}
			if n := rapid.SampledFrom(limits).Draw(t, "limit"); n >= 0 {
				r.Shared, r.Limit = true, n
			}
			if !again && len(m.holders) > 0 && rapid.IntRange(0, 7).Draw(t, "once more") == 0 {
				h := rapid.SampledFrom(m.holders).Draw(t, "holder")
				again = true
				timeout := r.Timeout
				r = h.Request
				r.Connection, r.Timeout = h.asked[0], timeout
			}
			return r
		}
		drawAll := func() (list []script.Request) {
			again = false
			for range rapid.IntRange(1, 5).Draw(t, "requests") {
				list = append(list, draw())
			}
			end := slices.IndexFunc(list, func(r script.Request) bool { return !r.Shared })
			switch {
			case end == 0:
				return list[:1]
			case end > 0:
				return list[:end]
			}
			return list
		}
		compare := func(what string, got, want any) {
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: %v, want %v; holders %+v", what, got, want, m.holders)
			}
		}
		// granted returns the tokens that a reply stands for.
		granted := func(token, given int64) (tokens []int64) {
			for i := range given {
				tokens = append(tokens, token+i)
			}
			return tokens
		}
		for range rapid.IntRange(15, 40).Draw(t, "steps") {
			m.pass(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "µs")) * time.Microsecond)
			l.emptyQueues()
			step := rapid.SampledFrom([]string{"lock", "lock", "unlock", "relock"}).Draw(t, "step")
			switch step {
			case "lock":
				requests := drawAll()
				b, err := l.beginTry(id.DB, lockRequests{requests[0]},
					trial{mode: script.ModeFirst, others: requests[1:]})
				if err != nil {
					t.Fatal(err)
				}
				got := run(b.Call)
				want := m.lock(requests)
				given := min(got[0], 1)
				if len(got) > 3 && got[0] != 0 {
					given = got[3]
				}
				compare("LOCK", granted(got[0], given), want)
				seen[fmt.Sprintf("lock %d", min(len(want), 2))]++
				lastTokens = append(lastTokens, want...)
			case "unlock":
				token := rapid.SampledFrom(lastTokens).Draw(t, "t")
				p := script.Proof{Kind: "token", Value: strconv.FormatInt(token, 10)}
				switch rapid.IntRange(0, 5).Draw(t, "proof") {
				case 0:
					p = script.Proof{Kind: "force", Value: ""}
				case 1, 2:
					p = script.Proof{Kind: "connection", Value: fmt.Sprintf("p-%d", rapid.IntRange(1, 5).Draw(t, "c"))}
				}
				var waiters []script.Request
				if rapid.Bool().Draw(t, "waiters") {
					waiters = drawAll()
					l.join(names.Identity{}, true, waiters...)
				}
				got := run(l.beginRelease(nil, id, names.Identity{}, p, true).Call)
				released, want := m.unlock(p, waiters)
				given := min(got[1], 1)
				if len(got) > 4 && got[1] != 0 {
					given = got[4]
				}
				compare("UNLOCK", fmt.Sprint(got[0], granted(got[1], given)),
					fmt.Sprint(released, want))
				seen[fmt.Sprintf("unlock %d %d", released, min(len(want), 2))]++
				lastTokens = append(lastTokens, want...)
			case "relock":
				token := rapid.SampledFrom(lastTokens).Draw(t, "t")
				timeout := time.Duration(rapid.IntRange(1, 300).Draw(t, "ms")) * time.Millisecond
				got := run(*l.common.Scripts.Relock(id, strconv.FormatInt(token, 10), timeout, false))
				want := m.relock(token, timeout)
				compare("RELOCK", got, []int64{want})
				seen[fmt.Sprintf("relock %d", want)]++
			}
			value, _ := client.Get(ctx, id.Key).Int64()
			latest, highest := int64(0), int64(0)
			for _, h := range m.holders {
				latest, highest = max(latest, h.expires), max(highest, h.token)
			}
			if value <= m.now.UnixMilli() {
				value = 0
			}
			compare("the key", value, latest)
			info := run(l.common.Scripts.Call(script.InfoScript, id.Key, script.NoFastPath, ""))
			switch {
			case len(m.holders) == 0 && len(info) > 0:
				t.Fatalf("LOCKINFO %v of a free lock", info)
			case len(m.holders) > 0:
				compare("LOCKINFO", []int64{info[2], info[6], info[10]},
					[]int64{highest, latest, int64(len(m.holders))})
			}
		}
	}
	missing := func() []string {
		all := []string{"lock 0", "lock 1", "lock 2", "unlock 0 0", "unlock 1 0", "unlock 2 0",
			"unlock 1 1", "unlock 1 2", "unlock 2 1", "unlock 2 2", "relock 0", "relock 1"}
		return slices.DeleteFunc(all, func(what string) bool { return seen[what] >= 3 })
	}
	for round := 0; round == 0 || round < 20 && len(missing()) > 0; round++ {
		rapid.Check(t, history)
	}
	if what := missing(); len(what) > 0 {
		t.Errorf("%q were hardly seen: %v", what, seen)
	}
}
