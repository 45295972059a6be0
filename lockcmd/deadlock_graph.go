package lockcmd

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// binary is a string of any bytes. In a message it is base64.
type binary string

// MarshalText implements encoding.TextMarshaler.
func (b binary) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(b)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *binary) UnmarshalText(text []byte) error {
	decoded, err := base64.StdEncoding.AppendDecode(nil, text)
	*b = binary(decoded)
	return err
}

// ownerWait is a LOCK … WAIT or a LOCKALL … WAIT, and the waits and owners that it waits for.
type ownerWait struct {
	ID    string // unique among all proxies
	Proxy string
	Owner binary // "" is none; others can wait behind it
	DB    int
	Since int64     // when it began, ns, by the clock of its proxy
	Keys  []keyWait // it is stuck if any of them is
	later bool      // it began after the searched wait: its owner is assumed to go on
}

// keyWait is a key of an ownerWait.
type keyWait struct {
	Key binary
	As  []string `json:",omitempty"` // the wait's names in places
	// Holders have the lock, and must release it first. The key is stuck if Enough of them are:
	// one, or as many as its limit.
	Holders []lockHolder `json:",omitempty"`
	Enough  int
	Before  []earlier `json:",omitempty"`
}

type lockHolder struct {
	Owner binary
	Token int64
}

// earlier is a wait for the same key that goes first: the key is stuck if that wait is, and as many
// of the holders as Holders.
type earlier struct {
	Proxy, As string
	Holders   int
	// They must not change between two searches: since when the upstream lists the proxy, and the
	// last token of a free lock.
	Listed, Token int64
}

// place is where a wait can be found. As is asExclusive or asLimit, for the first waiter of a
// proxy, or names a LOCKALL: its ID, or asListed of the first.
type place struct {
	Proxy string
	DB    int
	Key   binary
	As    string
}

const (
	asExclusive = "exclusive"
	asLimit     = "limit"
)

// asListed is a LOCKALL that the upstream lists since a time, ms.
func asListed(since int64) string { return "since " + strconv.FormatInt(since, 10) }

// parties are what others can wait for: the wait's places, and its owner.
func (w *ownerWait) parties() (list []any) {
	for _, k := range w.Keys {
		for _, as := range k.As {
			list = append(list, place{w.Proxy, w.DB, k.Key, as})
		}
	}
	if w.Owner != "" && !w.later {
		list = append(list, w.Owner)
	}
	return list
}

// place is where w's proxy expects a wait that goes before w's for a key.
func (w *ownerWait) place(k keyWait, e earlier) place { return place{e.Proxy, w.DB, k.Key, e.As} }

// younger is the order that all proxies agree on, also if their clocks do not.
func (w *ownerWait) younger(than *ownerWait) bool {
	return cmp.Or(cmp.Compare(w.Since, than.Since), strings.Compare(w.ID, than.ID)) > 0
}

// waitsFor is what is known of owners that wait for each other: their waits, by ID.
type waitsFor map[string]ownerWait

// both is what is in g and in later: it has lasted all the time between.
func (g waitsFor) both(later waitsFor) waitsFor {
	lasted := waitsFor{}
	for id, w := range g {
		again, ok := later[id]
		if !ok || len(again.Keys) != len(w.Keys) {
			continue
		}
		w.Keys = slices.Clone(w.Keys)
		for i, k := range w.Keys {
			l := again.Keys[i]
			w.Keys[i] = keyWait{k.Key, inBoth(k.As, l.As), inBoth(k.Holders, l.Holders),
				max(k.Enough, l.Enough), inBoth(k.Before, l.Before)}
		}
		lasted[id] = w
	}
	return lasted
}

// inBoth returns what two lists have in common.
func inBoth[T comparable](list, other []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(e T) bool {
		return !slices.Contains(other, e)
	})
}

// stuck returns the waits that cannot end before another of them does, each with only what blocks
// it. An owner waits as long as one of its waits does.
func (g waitsFor) stuck() waitsFor {
	left, waiting := waitsFor{}, map[any]int{}
	count := func(w ownerWait, n int) {
		for _, party := range w.parties() {
			waiting[party] += n
		}
	}
	for id, w := range g {
		left[id] = w
		count(w, 1)
	}
	for changed := true; changed; {
		changed = false
		for id, w := range left {
			if _, is := w.blocked(waiting); !is {
				delete(left, id)
				count(w, -1)
				changed = true
			}
		}
	}
	for id, w := range left {
		left[id], _ = w.blocked(waiting)
	}
	return left
}

// blocked returns w with only what blocks it: the holders and earlier waits that are in waiting.
// stuck is false if nothing does.
func (w ownerWait) blocked(waiting map[any]int) (by ownerWait, stuck bool) {
	by = w
	by.Keys = slices.Clone(w.Keys)
	for i := range by.Keys {
		k := &by.Keys[i]
		holders, before := k.Holders, k.Before
		k.Holders, k.Before = nil, nil
		for _, h := range holders {
			if waiting[h.Owner] > 0 {
				k.Holders = append(k.Holders, h)
			}
		}
		need := k.Enough
		for _, e := range before {
			switch {
			case waiting[w.place(*k, e)] == 0:
			case e.Holders > 0:
				need = min(need, e.Holders)
			default:
				k.Before = append(k.Before, e)
			}
		}
		if len(k.Holders) < need {
			k.Holders = nil
		}
		stuck = stuck || len(k.Holders)+len(k.Before) > 0
	}
	return by, stuck
}

// cycleStep is a wait of a cycle. The next one has the key, or is an earlier LOCKALL for it.
type cycleStep struct {
	id     string
	owner  binary
	db     int
	key    binary
	behind bool
}

// closedBy returns the waits of a list that close a deadlock, each with a shortest cycle of owners
// that began to wait earlier. So only the last wait of each deadlock is found, by its proxy.
func (g waitsFor) closedBy(list []*watchedWait) map[*watchedWait][]cycleStep {
	found, stuck := map[*watchedWait][]cycleStep{}, g.stuck()
	for _, v := range list {
		if start, ok := stuck[v.id]; ok {
			before := waitsFor{}
			for id := range stuck {
				w := g[id]
				w.later = w.younger(&start)
				before[id] = w
			}
			if cycle := before.stuck().cycle(v.id); cycle != nil {
				found[v] = cycle
			}
		}
	}
	return found
}

// cycle returns a shortest cycle of stuck waits that begins with id's, nil if there is none. The
// last step is for a lock of the first one's owner.
func (g waitsFor) cycle(id string) []cycleStep {
	start, ok := g[id]
	if !ok || start.Owner == "" {
		return nil
	}
	of := map[any][]string{}
	for id, w := range g {
		for _, party := range w.parties() {
			of[party] = append(of[party], id)
		}
	}
	before := map[string]cycleStep{id: {}}
	for next := []string{id}; len(next) > 0; next = next[1:] {
		w := g[next[0]]
		follow := func(party any, step cycleStep) {
			for _, id := range of[party] {
				if _, seen := before[id]; !seen {
					before[id] = step
					next = append(next, id)
				}
			}
		}
		for _, k := range w.Keys {
			step := cycleStep{w.ID, w.Owner, w.DB, k.Key, false}
			for _, h := range k.Holders {
				if h.Owner == start.Owner {
					return path(step, before)
				}
				follow(h.Owner, step)
			}
			step.behind = true
			for _, e := range k.Before {
				follow(w.place(k, e), step)
			}
		}
	}
	return nil
}

// path returns the steps up to a last one. before has the step to each wait, by its ID.
func path(last cycleStep, before map[string]cycleStep) (list []cycleStep) {
	for step := last; step.id != ""; step = before[step.id] {
		list = append(list, step)
	}
	slices.Reverse(list)
	return list
}

// DeadlockError says that a wait would have closed a cycle of owners that wait for each other.
type DeadlockError struct{ cycle []cycleStep }

func (e DeadlockError) Error() string {
	return "DEADLOCK " + e.describe() +
		": the lock was not acquired; release what others wait for, and ask again"
}

const (
	maxCycleNamed = 64 // waits that an error names
	maxNameShown  = 64 // bytes of a key's or owner's name that it shows
)

// describe names the cycle's keys and owners.
func (e DeadlockError) describe() string {
	var text strings.Builder
	quote := func(name binary) {
		text.WriteString(strconv.Quote(string(name[:min(len(name), maxNameShown)])))
	}
	quote(e.cycle[0].owner)
	for i, step := range e.cycle[:min(len(e.cycle), maxCycleNamed)] {
		switch {
		case i == 0:
		case e.cycle[i-1].behind:
			text.WriteString(" that")
		default:
			text.WriteString(", who")
		}
		text.WriteString(" waits for ")
		quote(step.key)
		if step.db != e.cycle[0].db {
			text.WriteString(" in database " + strconv.Itoa(step.db))
		}
		next := e.cycle[(i+1)%len(e.cycle)].owner
		switch {
		case !step.behind:
			text.WriteString(", held by ")
			quote(next)
		case next == "":
			text.WriteString(", behind a LOCKALL")
		default:
			text.WriteString(", behind a LOCKALL of ")
			quote(next)
		}
	}
	return text.String()
}
