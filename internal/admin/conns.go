package admin

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// MaxConns bounds the connections of a Server. As many open files are to be kept for it.
const MaxConns = 64

// conns are those of the admin server. If there are too many, the oldest one without a request is
// closed. So nobody takes the files that clients need, or keeps others from the page.
type conns struct {
	mu   sync.Mutex
	list []net.Conn            // guarded by mu; the oldest first
	busy map[net.Conn]struct{} // guarded by mu; those with a request
}

// changed is the ConnState of an http.Server.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.list = append(c.list, nc); len(c.list) > MaxConns {
			i := slices.IndexFunc(c.list, func(one net.Conn) bool { // at the latest it is nc
				_, busy := c.busy[one]
				return !busy
			})
			c.list[i].Close()
			c.removeLocked(c.list[i])
		}
	case http.StateActive:
		c.busy[nc] = struct{}{}
	case http.StateIdle:
		delete(c.busy, nc)
	case http.StateClosed, http.StateHijacked:
		c.removeLocked(nc)
	}
}

func (c *conns) removeLocked(nc net.Conn) {
	delete(c.busy, nc)
	c.list = slices.DeleteFunc(c.list, func(one net.Conn) bool { return one == nc })
}
