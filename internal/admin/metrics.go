package admin

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lockproxy/proxy"
)

// Metrics are for Prometheus. They are the proxy's Observer, so they are made before the proxy:
// give them to proxy.Config, then to Config here.
type Metrics struct {
	registry *prometheus.Registry
	took     []prometheus.Observer // by proxy.Kind
	acquired prometheus.Observer
	overtime prometheus.Observer
	held     prometheus.Observer
	waits    recentWaits
}

// Buckets, in seconds: from one round trip on loopback to longer than a client would wait.
var (
	commandBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5,
		1, 2.5, 5, 10}
	waitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
		60, 300, 1800}
	holdBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200,
		43200}
)

// NewMetrics returns Metrics without observations. version is the program's.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	commands := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lockproxy_command_duration_seconds",
		Help: "From a request's arrival to its reply's departure, by kind. Relayed requests, and " +
			"blocking commands among them, are sampled: every 64th batch that a client sends, up " +
			"to its first reply. LOCK with WAIT is in lockproxy_lock_wait_seconds instead.",
		Buckets: commandBuckets,
	}, []string{"kind"})
	waited := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lockproxy_lock_wait_seconds",
		Help: "How long LOCK with WAIT took, by how it ended: acquired, or wait_over. Waits that " +
			"failed, or whose clients disconnected, are left out.",
		Buckets: waitBuckets,
	}, []string{"outcome"})
	held := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "lockproxy_lock_hold_seconds",
		Help: "From acquisition to release of locks that were taken and released through this " +
			"proxy. Locks that expired are left out.",
		Buckets: holdBuckets,
	})
	m.registry.MustRegister(commands, waited, held, buildInfo(version),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for kind := range proxy.Kinds {
		m.took = append(m.took, commands.WithLabelValues(proxy.Kind(kind).String()))
	}
	m.acquired, m.overtime = waited.WithLabelValues("acquired"), waited.WithLabelValues("wait_over")
	m.held = held
	return m
}

// CommandTook implements proxy.Observer.
func (m *Metrics) CommandTook(kind proxy.Kind, d time.Duration) {
	m.took[kind].Observe(d.Seconds())
}

// LockHeld implements proxy.Observer.
func (m *Metrics) LockHeld(d time.Duration) { m.held.Observe(d.Seconds()) }

// LockWaited implements proxy.Observer.
func (m *Metrics) LockWaited(d time.Duration, acquired bool) {
	m.waits.add(d)
	if acquired {
		m.acquired.Observe(d.Seconds())
	} else {
		m.overtime.Observe(d.Seconds())
	}
}

// handler serves the metrics, with those of stats and shapes at the time.
func (m *Metrics) handler(stats func() proxy.Stats, shapes *shapesCollector) http.Handler {
	m.registry.MustRegister(&statsCollector{stats: stats})
	if shapes.most > 0 {
		m.registry.MustRegister(shapes)
	}
	return promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: scrapeTimeout})
}

// scrapeTimeout bounds one scrape; Prometheus itself gives up after ten seconds.
const scrapeTimeout = 10 * time.Second

func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lockproxy_build_info",
		Help:        "1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// reading is one metric that is read off proxy.Stats.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(st *proxy.Stats) []sample
}

type sample struct {
	label string // "" for a metric without
	value float64
}

// statsCollector turns proxy.Stats into metrics, all of one moment.
type statsCollector struct{ stats func() proxy.Stats }

func (c *statsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, r := range readings {
		out <- r.desc
	}
}

func (c *statsCollector) Collect(out chan<- prometheus.Metric) {
	st := c.stats()
	for _, r := range readings {
		for _, s := range r.read(&st) {
			if s.label == "" {
				out <- prometheus.MustNewConstMetric(r.desc, r.kind, s.value)
			} else {
				out <- prometheus.MustNewConstMetric(r.desc, r.kind, s.value, s.label)
			}
		}
	}
}
