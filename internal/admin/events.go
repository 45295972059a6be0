package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxStreams bounds how many pages are kept up to date at one time: see streams.
	maxStreams = 8
	// streamEvery is how often they are.
	streamEvery = time.Second
	// streamPatience is how long a client may take to read what it was sent.
	streamPatience = 5 * time.Second
)

// state is shown above the locks.
type state struct {
	Proxy      string `json:"proxy"` // which this is
	ID         string `json:"id"`    // as lock records and LOCKINFO WAITERS name it
	Version    string `json:"version"`
	Pages      []page `json:"pages"` // of the proxies in front of the same Redis
	Upstream   string `json:"upstream"`
	UpstreamUp bool   `json:"upstream_up"`
	Draining   bool   `json:"draining"`
	Clients    int    `json:"clients"`
	Waiters    int    `json:"waiters"`
	OldestMS   int64  `json:"oldest_wait_ms"`
	Held       int    `json:"held"` // taken through this proxy
	Acquired   uint64 `json:"acquired"`
	Expired    uint64 `json:"expired"`
	Lost       uint64 `json:"lost"`
	Forced     uint64 `json:"forced"`
	Deadlocks  uint64 `json:"deadlocks"`
}

func (s *Server) state() state {
	st := s.stats()
	l := st.Locks
	return state{
		Proxy: s.cfg.Name, ID: s.cfg.Proxy.ID(), Version: st.Version, Pages: s.proxyPages(),
		OldestMS: l.OldestWait.Milliseconds(),
		Upstream: st.Upstream, UpstreamUp: st.UpstreamUp, Draining: st.Draining,
		Clients: st.Clients,
		Waiters: l.Waiters, Held: l.Holding, Acquired: l.Acquired, Expired: l.Expired, Lost: l.Lost,
		Forced: l.Forced, Deadlocks: l.Deadlocks,
	}
}

// serveEvents is the stream that keeps a page up to date: each second the events "state", "locks",
// and "history" with the new points, and every other second "seen". It ends with the page, or with
// the server.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.streams.open(addressOf(r), func() {
		cancel()
		out.SetWriteDeadline(time.Unix(1, 0)) // it may be writing to a page that does not read
	})()
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	// 0, which is all, if it is missing
	last, _ := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	type event struct {
		name string
		data any
	}
	q := parseQuery(r)
	for ticks := 0; ; ticks++ {
		list := s.list(q)
		points := s.history.since(last)
		if len(points) > 0 {
			last = points[len(points)-1].At
		}
		if ctx.Err() != nil {
			return
		}
		out.SetWriteDeadline(time.Now().Add(streamPatience))
		news := []event{{"state", s.state()}, {"locks", list}, {"history", points}}
		if ticks%seenEvery == 0 {
			news = append(news, event{"seen", s.seen()})
		}
		for _, event := range news {
			data, err := json.Marshal(event.data)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event.name, data); err != nil {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
