package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/survey"
	"lockproxy/proxy"
)

// Config has the settings of a Server. Proxy and Metrics are required.
type Config struct {
	Proxy   *proxy.Server
	Metrics *Metrics // the proxy's Observer
	Name    string   // of the proxy, for people
	Page    string   // the URL of the live page, for other proxies to link to; "" tells nobody
	Token   string   // with it people can release locks; "" for nobody
	Pprof   bool
	// MetricShapes is how many shapes of keys have their own metrics; 0 is no such metrics.
	MetricShapes int
	Logger       hclog.Logger // nil logs nothing
}

// Server is the admin server. Make it with New; use Serve once.
type Server struct {
	cfg     Config
	log     hclog.Logger
	http    *http.Server
	ready   readiness
	history history
	survey  *survey.Survey
	logins  *logins
	pages   pages
	streams streams // the pages that are kept up to date
	conns   conns
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the recorder
}

// Bounds on a client's slowness. Streams move their own deadlines on.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 20 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 16 << 10
	// closePatience is how long Close waits for answers on their way.
	closePatience = 2 * time.Second
)

// New returns a Server that is not listening yet, but records the last minutes from now on. Close
// ends it.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	s := &Server{cfg: cfg, log: cfg.Logger, ready: readiness{ask: cfg.Proxy.Ready},
		pages: pages{last: []page{}}, logins: newLogins(cfg.Token),
		conns: conns{busy: map[net.Conn]struct{}{}}}
	s.survey = survey.New(upstreamLocks{cfg.Proxy}, cfg.Proxy.Identity().DB, survey.DefaultBudget)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	atDebug := hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}
	s.http = &http.Server{
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, ConnState: s.conns.changed,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       cfg.Logger.StandardLogger(&atDebug),
		BaseContext:    func(net.Listener) context.Context { return s.ctx },
	}
	s.running.Go(s.record)                        // ends with ctx; Close waits for it
	s.running.Go(func() { s.ready.probe(s.ctx) }) // likewise
	if cfg.Page != "" {
		s.running.Go(func() { cfg.Proxy.AnnouncePage(s.ctx, cfg.Page) }) // likewise
	}
	return s
}

// Serve answers requests on ln until Close; then it returns nil. It takes ln over.
func (s *Server) Serve(ln net.Listener) error {
	s.http.Handler = guard(s.routes(), isLoopback(ln.Addr()))
	err := s.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends everything at once, and returns when it has ended. Safe to call more than once.
func (s *Server) Close() {
	s.cancel() // ends streams, and other answers that take long
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	s.http.Shutdown(ctx)
	s.http.Close()
	s.running.Wait()
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.Handle("GET /metrics", s.cfg.Metrics.handler(s.stats, &shapesCollector{
		costs: s.costs, most: s.cfg.MetricShapes,
	}))
	mux.HandleFunc("GET /api/locks", s.serveLocks)
	mux.HandleFunc("GET /api/lock", s.serveLock)
	mux.HandleFunc("GET /api/top", s.serveTop)
	mux.HandleFunc("GET /api/log", s.serveLog)
	mux.HandleFunc("GET /api/session", s.serveSession)
	mux.HandleFunc("GET /events", s.serveEvents)
	mux.HandleFunc("POST /api/login", s.serveLogin)
	mux.HandleFunc("POST /api/logout", s.serveLogout)
	mux.HandleFunc("POST /api/release", s.serveRelease)
	servePage(mux)
	if s.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// record takes a point of the history each second.
func (s *Server) record() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.history.add(time.Now(), s.cfg.Proxy.Stats(), &s.cfg.Metrics.waits)
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}
