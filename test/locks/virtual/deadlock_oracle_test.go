//go:build !race

package virtual_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"
)

// oracle knows what all owners do. What one that waits has, it had before, and keeps meanwhile.
type oracle struct {
	mu      sync.Mutex
	last    map[string][]ownerWaits // guarded by mu; the last waits by owner, the latest first
	reports int                     // guarded by mu; reports
	behind  int                     // guarded by mu; steps of reports behind a LOCKALL
	worst   time.Duration           // guarded by mu; from the last wait of a cycle to its report
	closed  time.Duration           // guarded by mu; worst of cycles that are closed by that wait
	late    map[string]bool         // guarded by mu; those that lasted too long, by the last wait
}

type ownerWaits struct {
	owner    string
	proxy    int
	keys     []string // several by LOCKALL
	mode     string   // "" is exclusive
	has      map[string]string
	from, to time.Time
}

func newOracle() *oracle {
	return &oracle{last: map[string][]ownerWaits{}, late: map[string]bool{}}
}

func (o *oracle) waits(w ownerWaits) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.has, w.from = maps.Clone(w.has), time.Now()
	list := append([]ownerWaits{w}, o.last[w.owner]...)
	o.last[w.owner] = list[:min(5, len(list))]
}

func (o *oracle) answered(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[owner][0].to = time.Now()
}

var cyclePart = regexp.MustCompile(`"([^"]+)"(?:, who| that)? waits for "([^"]+)", (held|behind)`)

// judge returns what is wrong with a report, "" if it is true. Its receiver has not answered yet.
func (o *oracle) judge(report string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	parts := cyclePart.FindAllStringSubmatch(report, -1)
	var list []ownerWaits
	began, until := time.Time{}, time.Now()
	// A cycle with a place in a queue, or at a limit, can be closed later than by its last wait:
	// when a proxy's turn ends, or another holder waits.
	closed := true
	for i, part := range parts {
		owner, key := part[1], part[2]
		before := parts[(i+len(parts)-1)%len(parts)] // who waits for this owner
		w, found := o.findLocked(owner, key, before[2], before[3])
		if !found {
			return fmt.Sprintf("%s did not wait for %s", owner, key)
		}
		list = append(list, w)
		if w.from.After(began) {
			began = w.from
		}
		if !w.to.IsZero() && w.to.Before(until) {
			until = w.to
		}
	}
	if len(list) == 0 || began.After(until) {
		return fmt.Sprintf("not all waited at a time: %v, %v", began, until)
	}
	for i, w := range list {
		next, key := list[(i+1)%len(list)], parts[i][2]
		if parts[i][3] == "behind" {
			closed = false
			if o.behind++; !next.keeps(key, "behind") {
				return fmt.Sprintf("%s waited for %v", next.owner, next.keys)
			}
			continue
		}
		mode, has := next.has[key]
		if !has {
			return fmt.Sprintf("%s had no %s: %v", next.owner, key, next.has)
		}
		closed = closed && (w.mode == "" || mode == "")
		if w.mode == " SHARED" && mode != "" && !o.blockedLocked(w, key, began, until) {
			return fmt.Sprintf("%s and %s could share %s", w.owner, next.owner, key)
		}
	}
	o.reports++
	took := time.Since(began)
	o.worst = max(o.worst, took)
	if closed {
		o.closed = max(o.closed, took)
	}
	return ""
}

// findLocked returns an owner's last wait for a key during which it kept others from the key kept,
// or its last wait for the key if there is none such. Since then the owner can have waited for the
// key again: a report of another cycle can have ended the first wait. mu is held.
func (o *oracle) findLocked(owner, key, kept, how string) (found ownerWaits, ok bool) {
	for _, w := range o.last[owner] {
		switch {
		case !slices.Contains(w.keys, key):
		case w.keeps(kept, how):
			return w, true
		case !ok:
			found, ok = w, true
		}
	}
	return found, ok
}

// keeps reports whether w's owner keeps others from a key while it waits: it has it, or waits for it
// with a LOCKALL.
func (w ownerWaits) keeps(key, how string) bool {
	if how == "behind" {
		return len(w.keys) > 1 && slices.Contains(w.keys, key)
	}
	_, has := w.has[key]
	return has
}

// blockedLocked reports whether others waited for a key meanwhile that can keep a reader from it.
// mu is held.
func (o *oracle) blockedLocked(w ownerWaits, key string, began, until time.Time) bool {
	for _, list := range o.last {
		for _, v := range list {
			if v.owner != w.owner && v.mode != " SHARED" && slices.Contains(v.keys, key) &&
				!v.from.After(until) && (v.to.IsZero() || !v.to.Before(began)) {
				return true
			}
		}
	}
	return false
}

// order is by how much later a wait must begin to be certain to come after another.
const order = 50 * time.Millisecond

// blocks reports whether w waits for what v's owner has, or for v itself, which waits for the same.
// That is certain at one proxy only: another one can have its turn.
func (w ownerWaits) blocks(v ownerWaits, anyProxy bool) bool {
	for _, key := range w.keys {
		if mode, has := v.has[key]; has && (mode == "" || w.mode == "") {
			return true
		}
		if slices.Contains(v.keys, key) && v.mode == "" && w.from.Sub(v.from) > order &&
			(anyProxy || w.proxy == v.proxy) {
			return true
		}
	}
	return false
}

// check notes the deadlocks that have lasted for longer than limit. Behind waiters of other
// proxies, those first must wait for each other only.
func (o *oracle) check(limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, anyProxy := range []bool{false, true} {
		stuck := map[string]ownerWaits{}
		for owner, list := range o.last {
			if w := list[0]; w.to.IsZero() && time.Since(w.from) >= limit {
				stuck[owner] = w
			}
		}
		for before := -1; before != len(stuck); {
			before = len(stuck)
			maps.DeleteFunc(stuck, func(_ string, w ownerWaits) bool {
				for _, v := range stuck {
					if v.owner != w.owner && w.blocks(v, anyProxy) {
						return false
					}
				}
				return true
			})
		}
		if len(stuck) > 0 {
			list := slices.Sorted(maps.Keys(stuck))
			for i, owner := range list {
				w := stuck[owner]
				list[i] = fmt.Sprintf("%s>%v%s at %d, has %v",
					owner, w.keys, w.mode, w.proxy, w.has)
			}
			o.late[fmt.Sprint(list)] = true
		}
		limit += time.Second
	}
}
