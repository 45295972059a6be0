//go:build linux

package soak

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/process"
)

// Fault is one fault and its time in the round.
type Fault struct {
	Kind   string
	At     time.Duration
	For    time.Duration
	Target int // which of the possible targets
	Amount int // further choices: how much, which way
	Detail string

	breaks history.Breaks
	lasts  time.Duration // how long its effects outlast it
	longer time.Duration // how long leases outlast their timeouts
}

// thing names the target of a fault.
func (f Fault) thing() string {
	on := kinds[f.Kind].on
	switch on {
	case onRedis, onSpare, onMachine, onReplica:
		return on
	case onClient:
		return fmt.Sprint(on, f.client())
	}
	return fmt.Sprint(on, f.Target)
}

func (f Fault) String() string {
	return fmt.Sprintf("%6.2f s  %s, number %d, for %v, choice %d", f.At.Seconds(), f.Kind,
		f.Target, f.For.Round(time.Millisecond), f.Amount)
}

// Plan is what is done in one round.
type Plan struct {
	Round       int
	Seed        uint64
	Persistence process.Persistence
	Away        time.Duration // how far away redis is: there and back
	Far         time.Duration // how far away it is for the first proxy, if that is more
	Faults      []Fault
	Active      time.Duration // when the faults are over
	Quiet       time.Duration // how long clients continue after that
}

// Kinds are the names of all faults.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// NeedsMachine reports whether a machine vanishes.
func (p Plan) NeedsMachine() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return kinds[f.Kind].on == onMachine
	})
}

// NeedsReplica reports whether redis has a replica, which must confirm each lock.
func (p Plan) NeedsReplica() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return kinds[f.Kind].on == onReplica })
}

// NewPlan returns the plan of a round. It depends on its arguments alone. only leaves other kinds
// out, unless it is empty; machine says whether there is one that can vanish.
func NewPlan(seed uint64, round int, only []string, machine bool) Plan {
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	p := Plan{Round: round, Seed: random.Uint64(), Active: 12 * time.Second, Quiet: 5 * time.Second}
	p.Persistence = []process.Persistence{process.None, process.Always, process.Everysec,
		process.Never}[random.IntN(4)]
	p.Away = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}[round%3]
	names := Kinds()
	if len(only) > 0 {
		names = slices.Sorted(slices.Values(only))
	}
	if !machine {
		names = slices.DeleteFunc(names, func(name string) bool {
			return kinds[name].on == onMachine
		})
	}
	// In about half of the rounds no data is lost, so that all rules apply throughout. Each round
	// has only some of the kinds: a fault of one kind must not excuse what another breaks.
	if random.IntN(2) == 0 {
		p.Persistence = process.Always
		names = slices.DeleteFunc(names, func(name string) bool {
			return kinds[name].breaks.Leases
		})
	}
	if random.IntN(2) == 0 {
		names = slices.DeleteFunc(names, func(name string) bool {
			return kinds[name].breaks.Notices && !kinds[name].breaks.Vanishes
		})
	}
	// In every fourth round nothing excuses a late hand-over.
	if round%4 == 3 {
		p.Persistence = process.Always
		names = slices.DeleteFunc(names, func(name string) bool {
			b := kinds[name].breaks
			return b.Service || b.Orphans || b.Leases
		})
	}
	if len(names) == 0 {
		return p
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	often := []string{"", replicaLags, passwordRotates, passwordRotates}[round%4]
	if i := slices.Index(names, often); i >= 0 {
		names[0], names[i] = names[i], names[0]
	}
	names = names[:min(len(names), 6)]
	busy := map[string]time.Duration{} // until when each target has a fault
	for at := time.Second; ; at += time.Duration(random.Int64N(int64(2500 * time.Millisecond))) {
		f := Fault{Kind: names[random.IntN(len(names))], At: at, Target: random.IntN(proxies),
			Amount: random.IntN(1000)}
		f.For = 100*time.Millisecond +
			time.Duration(random.ExpFloat64()*float64(800*time.Millisecond))
		f.For = min(f.For, 4*time.Second)
		if f.At+f.For > p.Active {
			break
		}
		on := f.thing()
		if busy[on] > f.At {
			continue
		}
		busy[on] = f.At + f.For + 200*time.Millisecond
		p.Faults = append(p.Faults, f)
	}
	slices.SortFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return p
}

// Known reports whether there is a fault of that name.
func Known(name string) bool {
	_, ok := kinds[name]
	return ok
}

// String is the plan, for people.
func (p Plan) String() string {
	text := fmt.Sprintf("round %d, redis keeps: %s, and is %v away, %v for one proxy\n", p.Round,
		p.Persistence, p.Away, max(p.Far, p.Away))
	if p.NeedsReplica() {
		text += "  a replica must confirm each lock\n"
	}
	for _, f := range p.Faults {
		text += "  " + f.String() + "\n"
	}
	return text
}
