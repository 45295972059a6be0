package search

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
)

// message is what a proxy tells the others. In front of its JSON is its version: proxies of another
// one do not read it, and find no deadlocks together.
type message struct {
	Proxy  string
	By     string // the seal of Sealed
	Sealed []byte // a telling, by the login of the clients that it is about
}

// telling says which clients of one login wait.
type telling struct {
	Number int64 // later ones of the proxy have higher numbers
	Waits  []deadlock.Wait
	// Again are the IDs of waits that are to be told again before long.
	Again []string `json:",omitempty"`
	// Answers are the numbers of the last tellings of other proxies that asked for any: Waits have
	// lasted since.
	Answers map[string]int64 `json:",omitempty"`
}

const (
	version    = "3 "
	maxMessage = 1 << 19 // bytes of a message that is read
	maxTelling = 64      // keys of waits in a message, if there are several waits
	maxAsking  = 256     // proxies that are answered at a time
	maxAsked   = 1024    // waits of a login that are told again at a time
)

// clock is another one in tests.
var clock = time.Now

// tell publishes what clients of a login wait for. Until the login's key is derived, it tells
// nothing: it is told again before long.
func (d *Deadlocks) tell(as names.Identity, t telling) {
	by := d.logins.of(as)
	if !by.derived.Load() {
		return
	}
	t.Number = d.nextNumber()
	m := message{Proxy: d.Scripts.Proxy}
	plain, err := json.Marshal(t)
	if err != nil {
		return // of these types, all can be marshalled
	}
	m.By, m.Sealed = by.sealed(plain, m.Proxy)
	if text, err := json.Marshal(m); err == nil {
		d.publish(as, version+string(text))
	}
}

// nextNumber is a number for a message. None before had a higher one, of an earlier process neither.
func (d *Deadlocks) nextNumber() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = max(d.last+1, time.Now().UnixNano())
	return d.last
}

// tellAll tells of waits, in messages of some keys each.
func (d *Deadlocks) tellAll(as names.Identity, list []*wait, asked *asking) {
	for len(list) > 0 {
		t, keys := telling{}, 0
		if asked != nil {
			t.Answers = asked.answers
		}
		for _, w := range list {
			if keys += len(w.Keys); keys <= maxTelling || len(t.Waits) == 0 {
				t.Waits = append(t.Waits, w.Wait)
			}
		}
		list = list[len(t.Waits):]
		d.tell(as, t)
	}
}

// OnMessage notes another proxy's message: what it tells, and what it asks for.
func (d *Deadlocks) OnMessage(payload string) {
	loopguard.MayWait()
	var m message
	text, is := strings.CutPrefix(payload, version)
	if d.off() || !is || len(payload) > maxMessage || json.Unmarshal([]byte(text), &m) != nil ||
		m.Proxy == d.Scripts.Proxy {
		return
	}
	plain, as := d.logins.open(m.By, m.Sealed, m.Proxy)
	var t telling
	if json.Unmarshal(plain, &t) != nil {
		return
	}
	t.Waits = slices.DeleteFunc(t.Waits, func(w deadlock.Wait) bool {
		return !strings.HasPrefix(w.ID, m.Proxy+"-") || len(w.Keys) == 0 ||
			len(w.Keys) > maxSearch || tooLong(&w)
	})
	d.note(m, as, t, len(plain))
	for _, w := range t.Waits {
		d.watchBefore(&w)
	}
}

// asking are the waits of a login that are told again soon. See telling.Answers.
type asking struct {
	ids     map[string]bool
	answers map[string]int64 // by proxy
}

// has reports whether a wait is asked for. Nobody asks in nil.
func (a *asking) has(id string) bool { return a != nil && a.ids[id] }

// askedLocked notes what another proxy asks for, unless that is too much. mu is held.
func (d *Deadlocks) askedLocked(proxy string, as names.Identity, t telling) {
	a := d.asked[as]
	if a == nil {
		a = &asking{map[string]bool{}, map[string]int64{}}
		d.asked[as] = a
	}
	if len(t.Again) > maxSearch || len(a.ids) >= maxAsked || len(a.answers) >= maxAsking {
		return
	}
	a.answers[proxy] = t.Number
	for _, id := range t.Again {
		a.ids[id] = true
	}
	d.tickLocked()
}

// note notes what a message says. plain is its size in bytes.
func (d *Deadlocks) note(m message, as names.Identity, t telling, plain int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(t.Again) > 0 {
		d.askedLocked(m.Proxy, as, t)
	}
	for _, one := range t.Waits {
		one.Proxy = m.Proxy
		w := &wait{Wait: one, key: m.By + " " + one.ID, as: as, number: t.Number, at: clock(),
			answers: t.Answers[d.Scripts.Proxy], size: 1 + plain/len(t.Waits), by: m.By}
		w.as.DB = one.DB
		d.told.add(w)
	}
	close(d.news)
	d.news = make(chan struct{})
}
