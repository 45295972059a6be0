package admin

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/pprof/profile"

	"lockproxy/internal/journal"
	"lockproxy/internal/survey"
	"lockproxy/lockcmd"
)

// serveLockProfile is the waits for locks as a profile, for go tool pprof.
func (s *Server) serveLockProfile(w http.ResponseWriter, _ *http.Request) {
	stacks, since := s.cfg.Proxy.Locks().Stacks()
	p := waitProfile(stacks)
	p.TimeNanos, p.DurationNanos = since.UnixNano(), int64(time.Since(since))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="lock-waits.pb.gz"`)
	p.Write(w) // fails only if the client has gone
}

// waitProfile has a sample for each stack: waiter, shape of the key, key, holder.
func waitProfile(stacks []journal.Stack) *profile.Profile {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "waits", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"},
		},
		DefaultSampleType: "delay",
		PeriodType:        &profile.ValueType{Type: "waits", Unit: "count"},
		Period:            1,
	}
	frames := map[string]*profile.Location{}
	frame := func(kind, name string) *profile.Location {
		if name == "" && kind != "key" && kind != "shape" {
			name = "unknown"
		}
		text := kind + " " + shortened(survey.Printable(name))
		if known := frames[text]; known != nil {
			return known
		}
		f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: text}
		l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		frames[text] = l
		return l
	}
	for _, s := range stacks {
		key, shape := s.Key, lockcmd.ShapeOf(s.Key)
		if s.DB != 0 {
			db := fmt.Sprintf(" (db %d)", s.DB)
			key, shape = key+db, shape+db
		}
		p.Sample = append(p.Sample, &profile.Sample{
			Location: []*profile.Location{ // the innermost first
				frame("holder", s.Holder), frame("key", key), frame("shape", shape),
				frame("waiter", withoutPort(s.Waiter)),
			},
			Value: []int64{int64(s.Waits), int64(s.Wait)},
		})
	}
	return p
}

// withoutPort is the host of an address: the port differs with each connection, and says nothing
// about a waiter. Other names are left as they are.
func withoutPort(name string) string {
	if host, _, err := net.SplitHostPort(name); err == nil && net.ParseIP(host) != nil {
		return host
	}
	return name
}
