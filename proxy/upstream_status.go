package proxy

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/upstream"
)

// upstreamStatus is what the log has said last about whether the upstream serves: one line when it
// does not, from a look or from a connect, and one when it does again.
type upstreamStatus struct {
	mu    sync.Mutex
	fault string // guarded by mu; "" if it serves
}

// noConnect is the fault that a client's connect has failed.
const noConnect = "no connect"

// fails records a fault, and reports whether the log is to say so. connected says that the upstream
// has been reached. If it has not, those who look and those who connect find the same fault.
func (u *upstreamStatus) fails(fault string, connected bool) (say bool) {
	fault = strings.Map(withoutFigures, fault)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.fault == fault, u.fault == noConnect && !connected, u.fault != "" && fault == noConnect:
		return false
	}
	u.fault = fault
	return true
}

// withoutFigures drops digits: a port, or the memory in use, makes no other fault.
func withoutFigures(r rune) rune {
	if r >= '0' && r <= '9' || r == '.' {
		return -1
	}
	return r
}

// serves records that a look has found no fault.
func (u *upstreamStatus) serves(log hclog.Logger, up *upstream.Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fault != "" {
		log.Info("the upstream serves now", "upstream", up)
	}
	u.fault = ""
}

// connects records that a client's connect has succeeded, which says nothing of other faults.
func (u *upstreamStatus) connects(log hclog.Logger, up *upstream.Upstream) {
	u.mu.Lock()
	failed := u.fault == noConnect
	u.mu.Unlock()
	if failed {
		u.serves(log, up)
	}
}

// recordConnect counts a connect to the upstream, and logs how it went when that has changed. A nil
// error is success.
func (s *Server) recordConnect(err error) {
	s.counters.connected(err)
	switch {
	case err == nil:
		s.status.connects(s.log, s.cfg.Upstream)
	case s.ranOutOfFiles("connect to the upstream", err):
	case s.status.fails(noConnect, false):
		s.log.Error("the upstream does not serve: clients are answered UPSTREAM until it does",
			"upstream", s.cfg.Upstream, "error", err)
	}
}
