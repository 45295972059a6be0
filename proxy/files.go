package proxy

// The process has open files for a limited number of clients.

import (
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// fileReserve is how many open files are kept for what belongs to no client: listeners, connections
// that clients share, the proxy's own, and temporary files. Redis keeps as many.
const fileReserve = 32

// maxOwnFiles is how many open files are kept at most for connections of clients' own to the
// upstream, where clients share others: few of many clients need their own at one time.
const maxOwnFiles = 4096

// clientsByFiles is how many clients there are open files for. One that is let in must not be
// refused a connection of its own to the upstream.
func (cfg *Config) clientsByFiles() int {
	room := cfg.Files - cfg.OtherFiles - fileReserve
	all := room / cfg.filesEach() // each has its own
	if !cfg.Dedicated {
		all = max(all, room-maxOwnFiles)
	}
	return max(1, all)
}

// filesFor is how many open files that many clients want.
func (cfg *Config) filesFor(clients int) int {
	own := clients * (cfg.filesEach() - 1)
	if !cfg.Dedicated {
		own = min(own, maxOwnFiles)
	}
	return cfg.OtherFiles + fileReserve + clients + own
}

// filesEach is how many files one client takes at most.
func (cfg *Config) filesEach() int {
	each := 1
	if masters, _ := cfg.Upstream.ClusterMasters(); masters > 1 {
		each = masters
	}
	if cfg.Embedded { // the other end is in this process
		each *= 2
	}
	return 1 + each
}

// raiseFiles is what to do about too few open files.
const raiseFiles = "raise LimitNOFILE (ulimit -n), or lower --max-clients"

// warnOfFiles warns if there are open files for fewer clients than --max-clients says. A tenth less
// is not worth a line.
func (s *Server) warnOfFiles() {
	if room, most := s.cfg.clientsByFiles(), s.cfg.MaxClients; room < most-most/10 {
		s.log.Warn("there are open files for fewer clients than --max-clients: others are refused; "+
			raiseFiles, "clients", room, "max_clients", most, "open_files", s.cfg.Files,
			"files_wanted", s.cfg.filesFor(most))
	}
}

// filesEvery is how often a line says that no open file is left.
const filesEvery = int64(10 * time.Second)

// ranOutOfFiles reports whether something has failed because the process has no open file left for
// it, and logs that.
func (s *Server) ranOutOfFiles(what string, err error) bool {
	if !upstream.OutOfFiles(err) {
		return false
	}
	now, said := monotonic.Now(), s.filesSaid.Load()
	if (said == 0 || now-said >= filesEvery) && s.filesSaid.CompareAndSwap(said, now) {
		s.log.Error("the proxy has too many open files to "+what+": "+raiseFiles, "error", err)
	}
	return true
}
