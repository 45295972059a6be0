//go:build !race

package deadlock

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// randomWaits makes waits of few owners with locks of few keys. Some wait for several keys, and
// some have no owner.
func randomWaits(rng *rand.Rand) Graph {
	g := Graph{}
	owners, waits := 1+rng.IntN(6), 1+rng.IntN(7)
	name := func() Binary { return Binary(rune('a' + rng.IntN(owners))) }
	for i := range waits {
		w := Wait{ID: fmt.Sprint(i), Owner: name(), Since: rng.Int64N(5)}
		if rng.IntN(8) == 0 {
			w.Owner = ""
		}
		for range 1 + rng.IntN(2)*rng.IntN(3) {
			k := KeyWait{Key: "k", As: []string{w.ID}, Enough: 1 + rng.IntN(2)*rng.IntN(3)}
			for range rng.IntN(4) {
				k.Holders = append(k.Holders, Holder{name(), rng.Int64N(3)})
			}
			if rng.IntN(3) == 0 {
				k.Before = append(k.Before, Earlier{As: fmt.Sprint(rng.IntN(waits)),
					Holders: rng.IntN(2) * rng.IntN(4)})
			}
			w.Keys = append(w.Keys, k)
		}
		g[w.ID] = w
	}
	return g
}

// finished ends every wait that can end, and releases the locks of every owner that no longer
// waits, until nothing more can end. The waits that are left are stuck.
func finished(g Graph) (stuck map[string]bool) {
	stuck = map[string]bool{}
	for id := range g {
		stuck[id] = true
	}
	for range g {
		for id, w := range g {
			stuck[id] = stuck[id] && slices.ContainsFunc(w.Keys, func(k KeyWait) bool {
				behind := func(e Earlier) bool { return e.Holders == 0 && stuck[e.As] }
				return byHolders(g, stuck, k) || slices.ContainsFunc(k.Before, behind)
			})
		}
	}
	return stuck
}

// byHolders reports whether the holders of a key keep others waiting.
func byHolders(g Graph, stuck map[string]bool, k KeyWait) bool {
	held, need := 0, k.Enough
	for _, h := range k.Holders {
		for id, w := range g {
			if stuck[id] && w.Owner == h.Owner && !w.later {
				held++
				break
			}
		}
	}
	for _, e := range k.Before {
		if e.Holders > 0 && stuck[e.As] {
			need = min(need, e.Holders)
		}
	}
	return held >= need
}

// leads reports whether w, which is stuck, waits for u's owner, or behind u.
func leads(g Graph, stuck map[string]bool, w, u Wait, behind bool) bool {
	for _, k := range w.Keys {
		for _, h := range k.Holders {
			if !behind && h.Owner == u.Owner && byHolders(g, stuck, k) {
				return true
			}
		}
		for _, e := range k.Before {
			if behind && e.As == u.ID && e.Holders == 0 {
				return true
			}
		}
	}
	return false
}

// shortestCycle tries all paths of stuck waits from one back to it. It is 0 if there is none.
func shortestCycle(g Graph, stuck map[string]bool, start Wait, path []Wait) int {
	at, shortest := path[len(path)-1], 0
	if leads(g, stuck, at, start, false) {
		return len(path)
	}
next:
	for id, w := range g {
		for _, before := range path {
			if before.ID == id {
				continue next
			}
		}
		if stuck[id] && (leads(g, stuck, at, w, true) ||
			leads(g, stuck, at, w, false) && !w.later) {
			if n := shortestCycle(g, stuck, start, append(path[:len(path):len(path)], w)); n > 0 &&
				(shortest == 0 || n < shortest) {
				shortest = n
			}
		}
	}
	return shortest
}

// The search finds the same cycles as trying everything.
func TestDeadlocksAgainstTryingEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 1))
	cycles, behind, without := 0, 0, 0
	for range 3000 {
		g := randomWaits(rng)
		want, got := finished(g), g.stuck()
		for id := range g {
			if _, ok := got[id]; ok != want[id] {
				t.Fatalf("%s is stuck: %v, want %v in\n%+v", id, ok, want[id], g)
			}
			list := g.ClosedBy([]string{id})[id]
			g, start, n := maps.Clone(g), g[id], 0
			for id, w := range g {
				w.later = w.younger(&start)
				g[id] = w
			}
			want := finished(g)
			if want[id] && start.Owner != "" {
				n = shortestCycle(g, want, start, []Wait{start})
			}
			if len(list) != n {
				t.Fatalf("a cycle of %d from %s, want %d in\n%+v", len(list), id, n, g)
			}
			if n == 0 {
				without++
				continue
			}
			cycles++
			for i, step := range list {
				w, next := g[step.ID], g[list[(i+1)%n].ID]
				if !leads(g, want, w, next, step.behind) || step.behind && i == n-1 {
					t.Fatalf("%+v is no cycle in\n%+v", list, g)
				}
				if step.behind {
					behind++
				} else if next.later {
					t.Fatalf("%s is not the youngest of %+v in\n%+v", id, list, g)
				}
			}
		}
	}
	if cycles < 300 || behind < 300 || without < 300 {
		t.Errorf("%d cycles, %d steps behind others, %d waits without", cycles, behind, without)
	}
}

// Only what two searches have both found counts.
func TestDeadlocksNeedTheSameWaitsAndTokens(t *testing.T) {
	wait := func(id, owner, by string, token int64) Wait {
		return Wait{ID: id, Owner: Binary(owner), Since: token, Keys: []KeyWait{{Enough: 1,
			Holders: []Holder{{Binary(by), token}}}}}
	}
	graph := func(list ...Wait) Graph {
		g := Graph{}
		for _, w := range list {
			g[w.ID] = w
		}
		return g
	}
	// behind waits behind the LOCKALL as, for a lock that is free since a token.
	behind := func(id, owner, as string, token int64) Wait {
		return Wait{ID: id, Owner: Binary(owner), Since: token, Keys: []KeyWait{{Enough: 1,
			Before: []Earlier{{As: as, Token: token}}}}}
	}
	// listed is a LOCKALL that waits for ben's lock.
	listed := func(id, as string) Wait {
		w := wait(id, "", "ben", 8)
		w.Keys[0].As = []string{as}
		return w
	}
	held := graph(wait("1", "anna", "ben", 7), wait("2", "ben", "anna", 8))
	free := graph(behind("2", "ben", "since 5", 7), listed("3", "since 5"))
	for name, c := range map[string]struct {
		first, later Graph
		want         bool
	}{
		"alike":         {held, held, true},
		"another token": {held, graph(wait("1", "anna", "ben", 9), held["2"]), false},
		"another wait":  {held, graph(wait("3", "anna", "ben", 7), held["2"]), false},
		"one has left":  {held, graph(held["2"]), false},

		"alike behind":           {free, free, true},
		"it was taken meanwhile": {free, graph(behind("2", "ben", "since 5", 8), free["3"]), false},
		"another LOCKALL":        {free, graph(free["2"], listed("4", "since 5")), false},
		"it waits elsewhere":     {free, graph(free["2"], listed("3", "since 6")), false},
	} {
		g := c.first.Both(c.later).stuck()
		if got := g.cycle("1") != nil || g.cycle("2") != nil; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Names can have any bytes, in messages and in errors.
func TestDeadlockNamesOfAnyBytes(t *testing.T) {
	w := Wait{ID: "1", Owner: "a\xff\r\n", Keys: []KeyWait{{Key: "k\x00", Enough: 1, As: []string{"1"}}}}
	text, err := json.Marshal(w)
	var again Wait
	if err != nil || json.Unmarshal(text, &again) != nil || !reflect.DeepEqual(again, w) {
		t.Errorf("%s became %+v", text, again)
	}
	list := make([]Step, 1000)
	for i := range list {
		list[i] = Step{ID: "1", Owner: w.Owner, Key: Binary(strings.Repeat("k", 1000)),
			behind: i%2 == 0}
	}
	if text := (Error{list}).Error(); strings.ContainsAny(text, "\r\n") ||
		strings.IndexByte(text, 0xff) >= 0 || len(text) > 16<<10 {
		t.Errorf("%d bytes: %.200q", len(text), text)
	}
}
