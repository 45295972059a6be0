package admin

import (
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// streams are the live pages that are open. A new one always finds room: if need be, the oldest
// page of the address with the most pages is closed. So nobody can keep others from the live page.
type streams struct {
	mu     sync.Mutex
	opened []*stream // guarded by mu; the oldest first
}

type stream struct {
	address string
	end     func()
}

// open adds a page. end makes its stream end soon; when that has ended the caller calls closed.
func (s *streams) open(address string, end func()) (closed func()) {
	st := &stream{address, end}
	s.mu.Lock()
	s.opened = append(s.opened, st)
	var oldest *stream
	if len(s.opened) > maxStreams {
		oldest = s.oldestLocked()
		s.removeLocked(oldest)
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.end()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeLocked(st)
	}
}

// oldestLocked is the oldest page of the address that has most. mu is held.
func (s *streams) oldestLocked() *stream {
	pages := map[string]int{}
	for _, st := range s.opened {
		pages[st.address]++
	}
	oldest := s.opened[0]
	for _, st := range s.opened {
		if pages[st.address] > pages[oldest.address] {
			oldest = st
		}
	}
	return oldest
}

func (s *streams) removeLocked(st *stream) {
	s.opened = slices.DeleteFunc(s.opened, func(other *stream) bool { return other == st })
}

// addressOf is where a request comes from, without the port. For IPv6 it is the network of 64 bits,
// since a machine has all addresses of that.
func addressOf(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := from.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64)
	return network.String()
}
