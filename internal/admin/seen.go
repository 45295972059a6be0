package admin

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/survey"
	"lockproxy/lockcmd"
)

// JSON about locks in the last hour, as this proxy has seen them.

// lockCost is an entry of LOCKTOP.
type lockCost struct {
	ID            *string     `json:"id,omitempty"` // as of lockRow; a shape has none
	DB            int         `json:"db"`
	Key           string      `json:"key"`
	Acquired      uint32      `json:"acquired"`
	Refused       uint32      `json:"refused"`
	Waits         uint32      `json:"waits"`
	WaitMS        int64       `json:"wait_ms"`
	LongestWaitMS int64       `json:"longest_wait_ms"`
	HoldMS        int64       `json:"hold_ms"`
	LongestHoldMS int64       `json:"longest_hold_ms"`
	Blame         []lockBlame `json:"blame"`
}

type lockBlame struct {
	Holder string `json:"holder"`
	WaitMS int64  `json:"wait_ms"`
}

func costOf(c journal.Cost) lockCost {
	row := lockCost{
		ID: idOf(c.Key), DB: c.DB, Key: shortened(survey.Printable(c.Key)),
		Acquired: c.Acquired, Refused: c.Refused, Waits: c.Waits,
		WaitMS: c.Wait.Milliseconds(), LongestWaitMS: c.LongestWait.Milliseconds(),
		HoldMS: c.Hold.Milliseconds(), LongestHoldMS: c.LongestHold.Milliseconds(),
		Blame: []lockBlame{},
	}
	for _, b := range c.Blame[:min(len(c.Blame), maxBlamed)] {
		holder := cmp.Or(survey.Printable(b.Holder), "unknown")
		row.Blame = append(row.Blame, lockBlame{holder, b.Wait.Milliseconds()})
	}
	return row
}

// maxBlamed bounds the holders that are named of a lock.
const maxBlamed = 20

// lockEvent is an entry of LOCKLOG.
type lockEvent struct {
	ID     *string `json:"id,omitempty"` // as of lockRow
	AtMS   int64   `json:"at_ms"`
	Event  string  `json:"event"`
	DB     int     `json:"db"`
	Key    string  `json:"key"`
	Token  int64   `json:"token"`
	Owner  string  `json:"owner"`
	Client string  `json:"client"`
	Note   string  `json:"note,omitempty"`
	WaitMS int64   `json:"wait_ms"`
	HoldMS int64   `json:"hold_ms"`
	Cycle  string  `json:"cycle,omitempty"` // of a deadlock: its owners and keys
}

func eventsOf(list []journal.Event) []lockEvent {
	rows, now := make([]lockEvent, len(list)), time.Now()
	for i, e := range list {
		rows[i] = lockEvent{
			ID: idOf(e.Key), AtMS: now.Add(-e.Ago()).UnixMilli(), Event: e.Kind.String(), DB: e.DB,
			Key: shortened(survey.Printable(e.Key)), Token: e.Token,
			Owner: shortened(survey.Printable(e.Owner)), Client: e.Client,
			Note: survey.Printable(e.Note), WaitMS: e.Wait.Milliseconds(), HoldMS: e.Hold.Milliseconds(),
		}
	}
	return rows
}

// intOf is a number in the query, from 1 to limit; an invalid one becomes fallback.
func intOf(r *http.Request, name string, fallback, limit int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil && n > 0 {
		return min(n, limit)
	}
	return fallback
}

// serveTop is LOCKTOP: ?by=wait, hold or count, ?limit=, ?shapes=1, and ?minutes= for less than the
// last hour.
func (s *Server) serveTop(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	within := time.Duration(intOf(r, "minutes", 60, 60)) * time.Minute
	list, shapes := s.costs(within), form.Get("shapes") == "1"
	if shapes {
		list = lockcmd.MergeShapes(list)
	}
	lockcmd.SortCosts(list, form.Get("by"))
	rows := []lockCost{}
	for _, c := range list[:min(len(list), intOf(r, "limit", defaultTop, maxRows))] {
		row := costOf(c)
		if shapes {
			row.ID = nil
		}
		rows = append(rows, row)
	}
	writeJSON(w, rows)
}

// costs are those of all locks within a time.
func (s *Server) costs(within time.Duration) []journal.Cost {
	return s.cfg.Proxy.Locks().Costs(within, func(names.Lock) bool { return true })
}

const (
	// defaultTop is how many locks or events are shown if the query does not say.
	defaultTop = 20
	// maxTimeline bounds the events of one lock.
	maxTimeline = 60
)

// serveLog is the events of LOCKLOG, but of all databases, and those of kind GaveUp and Seen: ?db=
// and ?key= for one lock, and ?limit=.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request) {
	match, _ := matchOf(r)
	writeJSON(w, s.events(intOf(r, "limit", defaultTop, maxRows), match))
}

// events are the last ones of the locks that match.
func (s *Server) events(limit int, match func(names.Lock) bool) []lockEvent {
	events, _ := s.cfg.Proxy.Locks().Events(limit, func(e *journal.Event) bool {
		return match(e.Lock)
	})
	return eventsOf(events)
}

// matchOf matches the lock of ?db= and ?key=, or of ?id= from /api/locks; without them all locks.
func matchOf(r *http.Request) (match func(names.Lock) bool, id names.Lock) {
	form := r.URL.Query()
	id.DB, _ = strconv.Atoi(form.Get("db")) // 0 if it is missing
	id.Key = form.Get("key")
	name, err := base64.RawURLEncoding.DecodeString(form.Get("id"))
	if err == nil && form.Has("id") {
		id.Key = string(name)
	}
	all := !form.Has("key") && !form.Has("id")
	return func(of names.Lock) bool { return all || of == id }, id
}

// lockWaiter is a client in the queue of a lock.
type lockWaiter struct {
	Owner    string `json:"owner"`
	Name     string `json:"name"` // of the client's connection
	Client   string `json:"client"`
	WaitedMS int64  `json:"waited_ms"`
	LeftMS   *int64 `json:"left_ms"` // null waits forever
}

// lockTry is a foreign client that asks for a lock again and again.
type lockTry struct {
	Name    string `json:"name"`
	Client  string `json:"client"`
	Library string `json:"library"`
	Times   int    `json:"times"`
	ForMS   int64  `json:"for_ms"`
}

// oneLock is all that is known of one lock.
type oneLock struct {
	AtMS    int64        `json:"at_ms"`
	DB      int          `json:"db"`
	Key     string       `json:"key"`
	Holder  *lockRow     `json:"holder"`  // null if nobody holds it
	Through string       `json:"through"` // the ID of the holder's proxy; "" if it is not known
	Others  []string     `json:"others"`  // the IDs of other proxies that have waiters
	Waiters []lockWaiter `json:"waiters"`
	Trying  []lockTry    `json:"trying"` // foreign clients
	Five    *lockCost    `json:"last_5_minutes"`
	Sixty   *lockCost    `json:"last_60_minutes"`
	Events  []lockEvent  `json:"events"`
	Error   string       `json:"error,omitempty"`
}

// serveLock describes the lock of ?db= and ?key=: its holder, the queue at this proxy, what it has
// cost, and its last events.
func (s *Server) serveLock(w http.ResponseWriter, r *http.Request) {
	match, id := matchOf(r)
	if form := r.URL.Query(); !form.Has("key") && !form.Has("id") {
		http.Error(w, "the request names no lock: add ?key=", http.StatusBadRequest)
		return
	}
	locks, now := s.cfg.Proxy.Locks(), time.Now()
	one := oneLock{
		AtMS: now.UnixMilli(), DB: id.DB, Key: shortened(survey.Printable(id.Key)),
		Waiters: []lockWaiter{}, Trying: []lockTry{}, Others: []string{},
	}
	upstream := upstreamLocks{s.cfg.Proxy}
	list, err := upstream.Inspect(r.Context(), id.DB, []string{id.Key})
	if err != nil {
		one.Error = err.Error()
	} else if through, others, err := locks.Proxies(r.Context(), upstream.as(id.DB),
		id.Key); err == nil {
		one.Through, one.Others = through, append(one.Others, others...)
	}
	for _, h := range list {
		one.Holder = rowOf(survey.Row{Info: h})
	}
	for _, waiter := range locks.Waiters(id, maxRows) {
		row := lockWaiter{Owner: shortened(survey.Printable(waiter.Owner)),
			Name: survey.Printable(waiter.Name), Client: waiter.Client,
			WaitedMS: now.Sub(waiter.Since).Milliseconds()}
		if !waiter.Until.IsZero() {
			left := waiter.Until.Sub(now).Milliseconds()
			row.LeftMS = &left
		}
		one.Waiters = append(one.Waiters, row)
	}
	for _, t := range locks.Trying(id) {
		one.Trying = append(one.Trying, lockTry{shortened(survey.Printable(t.Name)), t.Addr,
			shortened(survey.Printable(t.Library)), t.Times, now.Sub(t.Since).Milliseconds()})
	}
	for minutes, cost := range map[time.Duration]**lockCost{5: &one.Five, 60: &one.Sixty} {
		for _, c := range locks.Costs(minutes*time.Minute, match) {
			row := costOf(c)
			*cost = &row
		}
	}
	one.Events = s.events(maxTimeline, match)
	writeJSON(w, one)
}
