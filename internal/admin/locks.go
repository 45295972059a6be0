package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/survey"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/proxy"
)

// maxKnown bounds the locks taken through this proxy that are shown without a scan.
const maxKnown = 2000

// upstreamLocks finds locks as the URL's user.
type upstreamLocks struct{ proxy *proxy.Server }

func (u upstreamLocks) as(db int) names.Identity {
	id := u.proxy.Identity()
	id.DB = db
	return id
}

func (u upstreamLocks) Snapshot() []lockinfo.Info { return u.proxy.Locks().Snapshot(maxKnown) }

func (u upstreamLocks) Scan(
	ctx context.Context, db int, cursor uint64, count int,
) (uint64, []string, error) {
	return u.proxy.Locks().Scan(ctx, u.as(db), cursor, count)
}

func (u upstreamLocks) Inspect(
	ctx context.Context, db int, keys []string,
) ([]lockinfo.Info, error) {
	return u.proxy.Locks().Inspect(ctx, u.as(db), keys)
}

// lockRow is one lock as the page gets it.
type lockRow struct {
	// ID is the name's bytes, base64; not there if it is too long to be asked for.
	ID          *string `json:"id,omitempty"`
	DB          int     `json:"db"`
	Key         string  `json:"key"`   // printable
	Makes       string  `json:"makes"` // the value that its holder makes, if it is ONCE's claim
	Kind        string  `json:"kind"`
	Token       int64   `json:"token"`
	Owner       string  `json:"owner"`
	Name        string  `json:"name"` // of the client's connection
	Note        string  `json:"note"` // why, if its client has said so
	Client      string  `json:"client"`
	Library     string  `json:"library"` // a foreign client's
	Refused     int     `json:"refused"` // how often others were refused since it has the lock
	HeldMS      int64   `json:"held_ms"` // -1 if nobody here knows
	RemainingMS int64   `json:"remaining_ms"`
	FullMS      int64   `json:"full_ms"` // that remaining is a part of
	Session     bool    `json:"session"`
	Shared      bool    `json:"shared"`
	Holders     int     `json:"holders"`
	Free        bool    `json:"free"` // it is between two holders
	Waiters     int     `json:"waiters"`
	Elsewhere   int     `json:"waiters_elsewhere"` // other proxies that have some, at least
	OldestMS    int64   `json:"oldest_wait_ms"`    // for how long the first of them has waited
}

// lockList is what is shown of the locks.
type lockList struct {
	Locks    []lockRow `json:"locks"`
	Matching int       `json:"matching"`
	Total    int       `json:"total"`
	Complete bool      `json:"complete"` // the whole upstream has been looked through once
	Full     bool      `json:"full"`     // there are more than are followed
	Error    string    `json:"error,omitempty"`
	AtMS     int64     `json:"at_ms"`
}

const (
	defaultRows = 200
	maxRows     = 1000
	maxName     = 4096 // bytes of a name that can be asked for
	maxShown    = 300  // characters of a name
	maxFilter   = 200
)

// freshFor is how old the survey can be when it is shown; stepTimeout bounds a step of it.
const (
	freshFor    = 900 * time.Millisecond
	stepTimeout = 3 * time.Second
)

// list shows the locks, after another step of the survey if the last is old. In a drain it asks
// nothing: the connections to the upstream are closing.
func (s *Server) list(q survey.Query) lockList {
	if !s.survey.Fresh(freshFor) && !s.cfg.Proxy.Stats().Draining {
		ctx, cancel := context.WithTimeout(s.ctx, stepTimeout)
		s.survey.Step(ctx)
		cancel()
	}
	if q.Filter != "" && !s.cfg.Proxy.Stats().Draining {
		ctx, cancel := context.WithTimeout(s.ctx, stepTimeout)
		s.survey.Find(ctx, q.Filter)
		cancel()
	}
	v := s.survey.View(q, time.Now())
	list := lockList{Locks: make([]lockRow, 0, len(v.Rows)), Matching: v.Matching, Total: v.Total,
		Complete: v.Complete, Full: v.Truncated, AtMS: v.At.UnixMilli()}
	if v.Err != nil {
		list.Error = v.Err.Error()
	}
	for _, r := range v.Rows {
		list.Locks = append(list.Locks, *rowOf(r))
	}
	return list
}

func rowOf(r survey.Row) *lockRow {
	row := &lockRow{
		DB: r.DB, Key: shortened(survey.Printable(r.Key)), Kind: r.Kind, Token: r.Token,
		Owner: shortened(survey.Printable(r.Owner)), Name: survey.Printable(r.Name), Client: r.Client,
		Note:    survey.Printable(r.Note),
		Library: shortened(survey.Printable(r.Library)), Refused: r.Refused,
		HeldMS: r.Age.Milliseconds(), RemainingMS: r.Remaining.Milliseconds(),
		FullMS: r.Lifetime.Milliseconds(), Shared: r.Mode == "shared", Holders: r.Holders,
		Session: r.Session, Free: r.Free, Waiters: r.Waiters, Elsewhere: r.Elsewhere,
		OldestMS: r.OldestWait.Milliseconds(),
		ID:       idOf(r.Key),
	}
	if r.Age < 0 {
		row.HeldMS = -1
	}
	if key, ok := keyname.MadeBy(r.Key); ok {
		row.Makes = shortened(survey.Printable(key))
	}
	return row
}

// idOf is a lock's name as ?id= takes it; nil if it is too long. The lock named "" has an empty
// one.
func idOf(key string) *string {
	if len(key) > maxName {
		return nil
	}
	id := base64.RawURLEncoding.EncodeToString([]byte(key))
	return &id
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return text
}

// parseQuery reads ?filter=…&sort=column&desc=1&limit=n. Invalid values become the defaults.
func parseQuery(r *http.Request) survey.Query {
	form := r.URL.Query()
	q := survey.Query{Filter: form.Get("filter"), Sort: survey.Column(form.Get("sort")),
		Descending: form.Get("desc") == "1", Limit: defaultRows}
	if len(q.Filter) > maxFilter {
		q.Filter = q.Filter[:maxFilter]
	}
	if !slices.Contains(survey.Columns, q.Sort) {
		q.Sort = survey.ByKey
	}
	if n, err := strconv.Atoi(form.Get("limit")); err == nil && n > 0 {
		q.Limit = min(n, maxRows)
	}
	return q
}

// serveLocks is one look at the locks.
func (s *Server) serveLocks(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, s.list(parseQuery(r)))
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // fails only if the client is disconnected
}
