package survey

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/lockinfo"
)

// Source is where locks are found.
type Source interface {
	// Snapshot tells what is known without asking the upstream.
	Snapshot() []lockinfo.Info
	// Scan is one step of a scan of a database, about count keys long. next is 0 at its end.
	Scan(ctx context.Context, db int, cursor uint64, count int) (next uint64, keys []string,
		err error)
	// Inspect returns those of the keys that are held now.
	Inspect(ctx context.Context, db int, keys []string) ([]lockinfo.Info, error)
}

// Budget bounds one Step.
type Budget struct {
	Scan    int // keys scanned
	Inspect int // locks inspected
}

// DefaultBudget costs a Redis about two percent of a second.
var DefaultBudget = Budget{Scan: 10000, Inspect: 1000}

const (
	scanCount    = 500   // keys of one SCAN, during which the upstream does nothing else
	inspectBatch = 200   // locks asked about in one go
	maxLocks     = 10000 // more are not followed
	maxScans     = 16    // databases
)

// Survey is the view. It is safe for concurrent use; Steps run one at a time.
type Survey struct {
	source Source
	budget Budget
	home   int // the database that is always scanned

	stepping sync.Mutex // held while a Step or Find runs; before mu

	mu        sync.Mutex
	locks     map[names.Lock]*seen         // guarded by mu
	waited    map[names.Lock]lockinfo.Info // guarded by mu; those of the last Snapshot
	scans     []*scan                      // guarded by mu
	next      int                          // guarded by mu; of scans, whose turn it is
	unseen    int                          // guarded by mu; locks never asked about
	err       error                        // guarded by mu; of the last Step
	truncated bool                         // guarded by mu; there are more than maxLocks
	at        time.Time                    // guarded by mu; when the last Step ended
}

// seen is a lock as it was when it was last inspected.
type seen struct {
	lockinfo.Info
	at      time.Time // zero: it is only known by name so far
	asked   time.Time // when the upstream was last asked about it, though it may have failed
	longest time.Duration
	free    bool // nobody had it when it was inspected, but clients wait for it
}

// shown reports whether the lock has been inspected, and its time has not passed since.
func (l *seen) shown(now time.Time) bool {
	return !l.at.IsZero() && (l.free || l.Remaining > now.Sub(l.at))
}

// scan is the progress through one database.
type scan struct {
	db     int
	cursor uint64
	rounds int
}

// New returns a Survey that knows nothing yet. home is the database that is always scanned; others
// are scanned once locks are known in them.
func New(source Source, home int, budget Budget) *Survey {
	return &Survey{source: source, budget: budget, home: home, locks: map[names.Lock]*seen{},
		scans: []*scan{{db: home}}}
}

// Step takes the view a little further. If another Step runs it waits for that one instead.
func (s *Survey) Step(ctx context.Context) {
	if !s.stepping.TryLock() {
		s.stepping.Lock()
		defer s.stepping.Unlock()
		return
	}
	defer s.stepping.Unlock()
	known := s.source.Snapshot()
	s.merge(known)
	err := s.scan(ctx)
	if inspectErr := s.inspect(ctx); err == nil {
		err = inspectErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.at = err, time.Now()
	if err != nil {
		s.fallBackLocked(known)
	}
}

// merge adds what is known without asking, to be inspected.
func (s *Survey) merge(known []lockinfo.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = map[names.Lock]lockinfo.Info{}
	for _, h := range known {
		s.addLocked(h.Lock)
		if h.Waiters > 0 {
			s.waited[h.Lock] = h
		}
		if len(s.scans) < maxScans &&
			!slices.ContainsFunc(s.scans, func(sc *scan) bool { return sc.db == h.DB }) {
			s.scans = append(s.scans, &scan{db: h.DB})
		}
	}
}

func (s *Survey) addLocked(place names.Lock) {
	if s.locks[place] != nil {
		return
	}
	if len(s.locks) >= maxLocks {
		s.truncated = true
		return
	}
	s.locks[place] = &seen{Info: lockinfo.Info{Lock: place}}
	s.unseen++
}

// Find looks for locks of one name in each database that is scanned. A scan may never find them.
func (s *Survey) Find(ctx context.Context, name string) {
	if name == "" {
		return
	}
	s.stepping.Lock()
	defer s.stepping.Unlock()
	s.mu.Lock()
	var unknown []int
	for _, sc := range s.scans {
		if s.locks[names.Lock{DB: sc.db, Key: name}] == nil && len(s.locks) < maxLocks {
			unknown = append(unknown, sc.db)
		}
	}
	s.mu.Unlock()
	for _, db := range unknown {
		found, err := s.source.Inspect(ctx, db, []string{name})
		if err != nil {
			return // a Step reports what fails
		}
		s.mu.Lock()
		for _, h := range found {
			s.addLocked(h.Lock)
		}
		s.mu.Unlock()
		s.inspected(db, []string{name}, found)
	}
}

// scan spends the budget for it, one database after the other, each at most once. One that fails
// loses its turn, so that it does not stop the others. The error is the first.
func (s *Survey) scan(ctx context.Context) error {
	var failed error
	for spent, ended := 0, 0; spent < s.budget.Scan; spent += scanCount {
		s.mu.Lock()
		sc := s.scans[s.next%len(s.scans)]
		db, cursor, databases := sc.db, sc.cursor, len(s.scans)
		enough := s.unseen >= s.budget.Inspect
		s.mu.Unlock()
		if enough { // most names that are found may be of locks that were released lately
			return failed
		}
		next, keys, err := s.source.Scan(ctx, db, cursor, scanCount)
		s.mu.Lock()
		for _, key := range keys {
			s.addLocked(names.Lock{DB: db, Key: key})
		}
		if err == nil {
			sc.cursor = next
		}
		if err == nil && next == 0 {
			sc.rounds++
		}
		if err != nil || next == 0 {
			s.next++
			ended++
		}
		s.mu.Unlock()
		failed = cmp.Or(failed, err)
		if ended == databases || err != nil && ctx.Err() != nil {
			return failed
		}
	}
	return failed
}

// inspect asks about as many locks as the budget allows.
func (s *Survey) inspect(ctx context.Context) error {
	var failed error
	for db, keys := range s.due() {
		for batch := range slices.Chunk(keys, inspectBatch) {
			found, err := s.source.Inspect(ctx, db, batch)
			if err != nil {
				failed = err
				s.notInspected(db, keys)
				break
			}
			s.inspected(db, batch, found)
		}
	}
	return failed
}

// due is the locks to inspect, by database: those never asked about, and those asked about longest
// ago, half of the budget each if there are enough of both.
func (s *Survey) due() map[int][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh, old []*seen
	for _, l := range s.locks {
		if l.asked.IsZero() {
			fresh = append(fresh, l)
		} else {
			old = append(old, l)
		}
	}
	slices.SortFunc(old, func(a, b *seen) int { return a.asked.Compare(b.asked) })
	half := s.budget.Inspect / 2
	fresh = fresh[:min(len(fresh), max(half, s.budget.Inspect-len(old)))]
	old = old[:min(len(old), s.budget.Inspect-len(fresh))]
	byDB := map[int][]string{}
	for _, l := range append(fresh, old...) {
		byDB[l.DB] = append(byDB[l.DB], l.Key)
	}
	return byDB
}

// inspected records which of the keys are held; the others are not any more. Keys that are not
// followed are left out.
func (s *Survey) inspected(db int, keys []string, found []lockinfo.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	byKey := map[string]lockinfo.Info{}
	for _, h := range found {
		byKey[h.Key] = h
	}
	for _, key := range keys {
		place := names.Lock{DB: db, Key: key}
		old := s.locks[place]
		if old == nil {
			continue
		}
		if old.asked.IsZero() {
			s.unseen--
		}
		h, ok := byKey[key]
		if waited, waits := s.waited[place]; !ok && waits {
			waited.Age, waited.Remaining = lockinfo.UnknownAge, 0
			waited.Owner, waited.Client = "", ""
			s.locks[place] = &seen{Info: waited, at: now, asked: now, free: true}
			continue
		}
		if !ok {
			delete(s.locks, place)
			s.truncated = s.truncated && len(s.locks) >= maxLocks
			continue
		}
		l := &seen{Info: h, at: now, asked: now, longest: h.Remaining}
		if old.Token == h.Token {
			l.longest = max(l.longest, old.longest)
		}
		s.locks[place] = l
	}
}

// notInspected records that the upstream was asked about these keys and did not tell about all. So
// they are asked about again in their turn, and stop neither the scan nor the inspection of others.
// Those that are not shown are forgotten if others need the room.
func (s *Survey) notInspected(db int, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, full := time.Now(), s.truncated
	for _, key := range keys {
		place := names.Lock{DB: db, Key: key}
		l := s.locks[place]
		if l == nil {
			continue
		}
		if l.asked.IsZero() {
			s.unseen--
		}
		l.asked = now
		if full && !l.shown(now) {
			delete(s.locks, place)
		}
	}
	s.truncated = full && len(s.locks) >= maxLocks
}

// fallBackLocked shows what the source knows of locks that could not be inspected. mu is held.
func (s *Survey) fallBackLocked(known []lockinfo.Info) {
	now := time.Now()
	for _, h := range known {
		if l := s.locks[h.Lock]; l != nil && h.Token != 0 && l.Token != h.Token {
			*l = seen{Info: h, at: now, asked: l.asked, longest: h.Remaining}
		}
	}
}

// Fresh reports whether the last Step ended no longer ago than age.
func (s *Survey) Fresh(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.at) < age
}

// current is all locks whose time has not passed yet.
func (s *Survey) current(now time.Time) []Row {
	rows := make([]Row, 0, len(s.locks))
	for _, l := range s.locks {
		if !l.shown(now) {
			continue
		}
		since := now.Sub(l.at)
		r := Row{Info: l.Info, Lifetime: l.longest, Free: l.free}
		if r.Age >= 0 {
			r.Age += since
		}
		r.Remaining = max(r.Remaining-since, 0)
		if r.Waiters > 0 {
			r.OldestWait += since
		}
		if !r.Session {
			r.Lifetime = max(r.Age, 0) + r.Remaining
		}
		r.Lifetime = max(r.Lifetime, r.Remaining)
		rows = append(rows, r)
	}
	slices.SortFunc(rows,
		func(a, b Row) int { return cmp.Or(cmp.Compare(a.DB, b.DB), cmp.Compare(a.Key, b.Key)) })
	return rows
}
