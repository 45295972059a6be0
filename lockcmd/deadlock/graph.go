package deadlock

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// Binary is a string of any bytes. In a message between proxies it is base64.
type Binary string

// MarshalText implements encoding.TextMarshaler.
func (b Binary) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(b)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Binary) UnmarshalText(text []byte) error {
	decoded, err := base64.StdEncoding.AppendDecode(nil, text)
	*b = Binary(decoded)
	return err
}

// Wait is a LOCK … WAIT or a LOCKALL … WAIT, and the waits and owners that it waits for.
type Wait struct {
	ID    string // unique among all proxies
	Proxy string `json:"-"`
	Owner Binary // "" is none; others can wait behind it
	DB    int
	Since int64     // when it began, ns, by the clock of its proxy
	All   bool      // it is a LOCKALL
	Keys  []KeyWait // it is stuck if any of them is
	later bool      // it began after the searched wait: its owner is assumed to go on
}

// KeyWait is a key of a Wait.
type KeyWait struct {
	Key      Binary
	As       []string `json:",omitempty"` // the wait's names in places
	Shared   bool     // it waits for a shared lock
	Behind   string   `json:",omitempty"` // the ID of the last LOCKALL before it at its proxy
	AllSince int64    `json:",omitempty"` // since when the first waiter there waits, if it is a LOCKALL
	Enough   int      // see Holders

	// The search fills in who keeps it waiting, as the record of the lock tells.

	// Holders have the lock, and must release it first. The key is stuck if Enough of them are:
	// one, or as many as its limit.
	Holders []Holder  `json:"-"`
	Before  []Earlier `json:"-"`
}

// Holder has the lock.
type Holder struct {
	Owner Binary
	Token int64
}

// Earlier is a wait for the same key that goes first: the key is stuck if that wait is, and as many
// of the holders as Holders.
type Earlier struct {
	Proxy, As string
	Holders   int
	// Listed is since when the upstream lists the proxy, and the last token of a free lock. Neither
	// may change between two searches.
	Listed, Token int64
}

// place is where a wait can be found. As is AsExclusive or AsLimit, for the first waiter of a
// proxy, or names a LOCKALL: its ID, or AsListed of the first.
type Place struct {
	Proxy string
	DB    int
	Key   Binary
	As    string
}

const (
	AsExclusive = "exclusive"
	AsLimit     = "limit"
)

// AsListed is a LOCKALL that the upstream lists since a time, ms.
func AsListed(since int64) string { return "since " + strconv.FormatInt(since, 10) }

// Parties returns the places of a wait, and its owner: others can wait for each of them.
func (w *Wait) Parties() (list []any) {
	for _, k := range w.Keys {
		for _, as := range k.As {
			list = append(list, Place{w.Proxy, w.DB, k.Key, as})
		}
	}
	if w.Owner != "" && !w.later {
		list = append(list, w.Owner)
	}
	return list
}

// WaitsFor are the parties that w waits for.
func (w *Wait) WaitsFor() (list []any) {
	for _, k := range w.Keys {
		for _, h := range k.Holders {
			list = append(list, h.Owner)
		}
		for _, e := range k.Before {
			list = append(list, w.Place(k, e))
		}
	}
	return list
}

// Place is where w's proxy expects a wait that goes before w's for a key.
func (w *Wait) Place(k KeyWait, e Earlier) Place { return Place{e.Proxy, w.DB, k.Key, e.As} }

// younger is the order that all proxies agree on, also if their clocks do not.
func (w *Wait) younger(than *Wait) bool {
	return cmp.Or(cmp.Compare(w.Since, than.Since), strings.Compare(w.ID, than.ID)) > 0
}

// Graph is what is known of owners that wait for each other: their waits, each by an ID that only it
// has there.
type Graph map[string]Wait

// Both has the waits that are in g and in later: they have lasted all the time between.
func (g Graph) Both(later Graph) Graph {
	lasted := Graph{}
	for id, w := range g {
		again, ok := later[id]
		if !ok || len(again.Keys) != len(w.Keys) {
			continue
		}
		w.Keys = slices.Clone(w.Keys)
		for i, k := range w.Keys {
			l := again.Keys[i]
			w.Keys[i] = KeyWait{Key: k.Key, As: inBoth(k.As, l.As), Enough: max(k.Enough, l.Enough),
				Holders: inBoth(k.Holders, l.Holders), Before: inBoth(k.Before, l.Before)}
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
func (g Graph) stuck() Graph {
	left, waiting := Graph{}, map[any]int{}
	count := func(w Wait, n int) {
		for _, party := range w.Parties() {
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
func (w Wait) blocked(waiting map[any]int) (by Wait, stuck bool) {
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
			case waiting[w.Place(*k, e)] == 0:
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

// Step is a wait of a cycle. The next one has the key, or is an earlier LOCKALL for it.
type Step struct {
	ID     string // of the wait, in the Graph
	Owner  Binary
	DB     int
	Key    Binary
	Hidden bool // who is told of the cycle may not read the key
	behind bool
}

// ClosedBy returns the waits, of those with some IDs, that close a deadlock, each with a shortest
// cycle of owners that began to wait earlier. So only the last wait of each deadlock is found, by
// its proxy.
func (g Graph) ClosedBy(ids []string) map[string][]Step {
	found, stuck := map[string][]Step{}, g.stuck()
	for _, id := range ids {
		if start, ok := stuck[id]; ok {
			before := Graph{}
			for id := range stuck {
				w := g[id]
				w.later = w.younger(&start)
				before[id] = w
			}
			if cycle := before.stuck().cycle(id); cycle != nil {
				found[id] = cycle
			}
		}
	}
	return found
}

// cycle returns a shortest cycle of stuck waits that begins with id's, nil if there is none. The
// last step is for a lock of the first one's owner.
func (g Graph) cycle(id string) []Step {
	start, ok := g[id]
	if !ok || start.Owner == "" {
		return nil
	}
	of := map[any][]string{}
	for id, w := range g {
		for _, party := range w.Parties() {
			of[party] = append(of[party], id)
		}
	}
	before := map[string]Step{id: {}}
	for next := []string{id}; len(next) > 0; next = next[1:] {
		at := next[0]
		w := g[at]
		follow := func(party any, step Step) {
			for _, id := range of[party] {
				if _, seen := before[id]; !seen {
					before[id] = step
					next = append(next, id)
				}
			}
		}
		for _, k := range w.Keys {
			step := Step{ID: at, Owner: w.Owner, DB: w.DB, Key: k.Key}
			for _, h := range k.Holders {
				if h.Owner == start.Owner {
					return path(step, before)
				}
				follow(h.Owner, step)
			}
			step.behind = true
			for _, e := range k.Before {
				follow(w.Place(k, e), step)
			}
		}
	}
	return nil
}

// path returns the steps up to a last one. before has the step to each wait, by its ID.
func path(last Step, before map[string]Step) (list []Step) {
	for step := last; step.ID != ""; step = before[step.ID] {
		list = append(list, step)
	}
	slices.Reverse(list)
	return list
}

// Error says that a wait would have closed a cycle of owners that wait for each other.
type Error struct{ cycle []Step }

// NewError makes an Error of a cycle.
func NewError(cycle []Step) Error { return Error{cycle} }

func (e Error) Error() string {
	return "DEADLOCK " + e.Describe() +
		": the lock was not acquired; release what others wait for, and ask again"
}

// Key is what the youngest wait of the cycle is for.
func (e Error) Key() string { return string(e.cycle[0].Key) }

const (
	maxCycleNamed = 64 // waits that an error names
	maxNameShown  = 64 // bytes of a key's or owner's name that it shows
)

// Describe names the cycle's keys and owners, but for keys that are hidden, and their holders.
func (e Error) Describe() string {
	var text strings.Builder
	quote := func(name Binary) {
		text.WriteString(strconv.Quote(string(name[:min(len(name), maxNameShown)])))
	}
	quote(e.cycle[0].Owner)
	for i, step := range e.cycle[:min(len(e.cycle), maxCycleNamed)] {
		switch {
		case i == 0:
		case e.cycle[i-1].Hidden:
			text.WriteString(", whose holder")
		case e.cycle[i-1].behind:
			text.WriteString(" that")
		default:
			text.WriteString(", who")
		}
		text.WriteString(" waits for ")
		last := i == len(e.cycle)-1 // the first one holds its lock
		next := e.cycle[(i+1)%len(e.cycle)].Owner
		if step.Hidden {
			text.WriteString("a lock that you may not read")
			if !last {
				continue
			}
		} else {
			quote(step.Key)
			if step.DB != e.cycle[0].DB {
				text.WriteString(" in database " + strconv.Itoa(step.DB))
			}
		}
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
