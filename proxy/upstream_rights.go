package proxy

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/rights"
)

// rightsAgain is the pause before the next look while something is missing: an operator may have
// given it.
const rightsAgain = time.Minute

// rightsWatch says in the log what the user in --upstream may not do, and what the upstream cannot
// do. It says it once, and again when that has changed.
type rightsWatch struct {
	server *Server
	known  bool      // it has looked since the upstream serves
	again  time.Time // when to look again; zero is when the upstream serves again
	said   string    // what is missing, as the log has it; "" is nothing
}

// look looks whether anything is missing, if the upstream serves and there is a reason to look.
func (w *rightsWatch) look(ctx context.Context, serves bool) {
	loopguard.MayWait()
	w.known = w.known && serves
	if !serves || w.known && (w.again.IsZero() || time.Now().Before(w.again)) {
		return
	}
	s := w.server
	once, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout+checkRetry)
	defer cancel()
	missing, err := s.missing(once)
	if err != nil {
		s.log.Debug("cannot check what the user in --upstream may do", "error", err)
		return // the next look tries again
	}
	w.known, w.again = true, time.Time{}
	text := missing.text()
	if text != "" {
		w.again = time.Now().Add(rightsAgain)
	}
	changed := text != w.said
	w.said = text
	switch {
	case !changed:
	case missing.login:
		s.log.Info(text + ": clients that don't log in themselves are answered NOAUTH")
	case len(missing.fails) > 0:
		s.log.Warn("lock commands are answered with errors, unless clients log in as another "+
			"user; lockproxy check says more", "missing", text)
	case text != "":
		s.log.Info("some lock commands fail, or are slower, unless clients log in as another "+
			"user; lockproxy check says more", "missing", text)
	default:
		s.log.Info("the lock commands have everything that they need again")
	}
}

// missing is what clients lack who do not log in themselves.
type missing struct {
	login bool     // the upstream wants one, and --upstream has none
	fails []string // what no lock command works without
	other []string
}

func (m *missing) text() string {
	if m.login {
		return "the upstream wants a login, and --upstream has none"
	}
	return strings.Join(append(m.fails, m.other...), "; ")
}

// missing finds out what is missing.
func (s *Server) missing(ctx context.Context) (m missing, err error) {
	as := s.cfg.Upstream.Initial
	client := s.cfg.Upstream.Client(as)
	defer client.Close()
	// The prober's connection can be from before there was a password.
	if redis.HasErrorPrefix(client.Ping(ctx).Err(), "NOAUTH") {
		return missing{login: true}, nil
	}
	found, err := rights.Try(ctx, client, rights.Purpose{User: as.User,
		Cluster: s.cfg.Locks.Cluster, Replicas: s.cfg.Locks.MinReplicas > 0,
		Fsync: s.cfg.Locks.RequireFsync})
	for _, lack := range found.Lacks {
		if lack.Fails {
			m.fails = append(m.fails, lack.Text)
		} else {
			m.other = append(m.other, lack.Text)
		}
	}
	return m, err
}
