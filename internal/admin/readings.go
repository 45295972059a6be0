package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"lockproxy/proxy"
)

// readings are all metrics that are read from proxy.Stats.
var readings = []reading{
	gauge("client_connections", "Clients that are connected.",
		func(st *proxy.Stats) float64 { return float64(st.Clients) }),
	counter("client_connections_accepted_total", "Clients that have connected.",
		func(st *proxy.Stats) uint64 { return st.Accepted }),
	counter("client_connections_rejected_total", "Clients that were refused because of "+
		"--max-clients, or because of too few open files.",
		func(st *proxy.Stats) uint64 { return st.Rejected }),
	counter("client_received_bytes_total", "Bytes that clients have sent, without TLS and PROXY "+
		"headers.",
		func(st *proxy.Stats) uint64 { return st.BytesIn }),
	counter("client_sent_bytes_total", "Bytes sent to clients, not counting TLS.",
		func(st *proxy.Stats) uint64 { return st.BytesOut }),
	labeled("commands_total", "Requests, by what the proxy does with them: relay is passed on, "+
		"introspect is COMMAND, the others are the lock commands.",
		prometheus.CounterValue, "kind", commandSamples),
	gauge("draining", "1 while the proxy is shutting down: it finishes what it was sent and "+
		"takes nothing new.",
		func(st *proxy.Stats) float64 { return flag(st.Draining) }),
	counter("panics_total", "Faults of lockproxy itself that have disconnected a client, each with "+
		"its stack in the log.",
		func(st *proxy.Stats) uint64 { return st.Panics }),

	gauge("upstream_up",
		"0 if the last attempt to connect a client to the upstream has failed, or the last probe "+
			"(each second); otherwise 1.",
		func(st *proxy.Stats) float64 { return flag(st.UpstreamUp) }),
	gauge("upstream_cluster_masters", "Nodes of the Redis Cluster behind the proxy that serve "+
		"slots, as far as is known; 0 if the upstream is no cluster.",
		func(st *proxy.Stats) float64 { return float64(st.ClusterMasters) }),
	gauge("upstream_cluster_whole", "1 if each slot of the Redis Cluster behind the proxy is "+
		"served by a node, as far as is known.",
		func(st *proxy.Stats) float64 { return flag(st.ClusterWhole) }),
	counter("upstream_connects_total", "Connections to the upstream that were made for clients.",
		func(st *proxy.Stats) uint64 { return st.Connects }),
	counter("upstream_connect_failures_total", "Connections to the upstream that could not be "+
		"made for clients.",
		func(st *proxy.Stats) uint64 { return st.ConnectFailures }),
	labeled("upstream_connections", "Connections to the upstream for clients: lane ones are "+
		"shared, home ones are a client's own, spare ones are for clients to come.",
		prometheus.GaugeValue, "use", func(st *proxy.Stats) []sample {
			return []sample{{"lane", float64(st.Connections.Lanes)},
				{"home", float64(st.Connections.Homes)},
				{"spare", float64(st.Connections.Spares)}}
		}),
	counter("upstream_homes_opened_total", "How often a client got a connection of its own.",
		func(st *proxy.Stats) uint64 { return st.Connections.Opened }),
	counter("upstream_homes_reused_total", "How often a client got a connection of its own that "+
		"another client had had.",
		func(st *proxy.Stats) uint64 { return st.Connections.Reused }),
	gauge("clients_on_lanes", "Clients that share connections to the upstream.",
		func(st *proxy.Stats) float64 { return float64(st.Connections.Shared) }),

	counter("locks_acquired_total", "Locks that were acquired with a new token.",
		func(st *proxy.Stats) uint64 { return st.Locks.Acquired }),
	counter("locks_renewed_total", "LOCKs by the OWNER who had the lock.",
		func(st *proxy.Stats) uint64 { return st.Locks.Renewed }),
	gauge("foreign_locks", "Locks of other lock libraries that were taken through this proxy "+
		"and are held, as far as it has seen.",
		func(st *proxy.Stats) float64 { return float64(st.Locks.Foreign.Held) }),
	gauge("foreign_clients_trying", "Clients of other lock libraries that ask for locks through "+
		"this proxy and were refused within the last 10 s, at most 16 for each lock.",
		func(st *proxy.Stats) float64 { return float64(st.Locks.Foreign.Trying) }),
	gauge("foreign_oldest_try_seconds", "The longest time that a client of another lock library "+
		"has been trying to take a lock through this proxy; 0 if none is.",
		func(st *proxy.Stats) float64 { return st.Locks.Foreign.OldestTry.Seconds() }),
	labeled("foreign_locks_total", "What has happened to locks of other lock libraries through "+
		"this proxy: taken, released, expired, or refused to one that tried.",
		prometheus.CounterValue, "event", func(st *proxy.Stats) []sample {
			f := &st.Locks.Foreign
			return []sample{{"taken", float64(f.Taken)}, {"released", float64(f.Released)},
				{"expired", float64(f.Expired)}, {"refused", float64(f.Refused)}}
		}),
	labeled("locks_refused_total", "LOCKs that got no lock, by reason: held by another, "+
		"wait_over, client_gone while it waited, or error.",
		prometheus.CounterValue, "reason", func(st *proxy.Stats) []sample {
			l := &st.Locks
			return []sample{{"held", float64(l.Held)}, {"wait_over", float64(l.Overtime)},
				{"client_gone", float64(l.Gone)}, {"error", float64(l.Failed)}}
		}),
	labeled("locks_released_total", "Locks that were released, by: holder, force (UNLOCK "+
		"FORCE or the admin page), or disconnect, for a holder whose connection had closed.",
		prometheus.CounterValue, "by", func(st *proxy.Stats) []sample {
			l := &st.Locks
			return []sample{{"holder", float64(l.Unlocked)}, {"force", float64(l.Forced)},
				{"disconnect", float64(l.Disconnect)}}
		}),
	counter("locks_acquired_shared_total", "Acquisitions by LOCK SHARED or LIMIT.",
		func(st *proxy.Stats) uint64 { return st.Locks.Shared }),
	counter("locks_expired_total", "Locks taken through this proxy whose time has passed with "+
		"no release seen here.",
		func(st *proxy.Stats) uint64 { return st.Locks.Expired }),
	counter("locks_lost_total", "Session locks that could not be renewed in time or were taken "+
		"away; their holders were told.",
		func(st *proxy.Stats) uint64 { return st.Locks.Lost }),
	counter("lock_handoffs_total", "Locks that a release gave to a waiter directly.",
		func(st *proxy.Stats) uint64 { return st.Locks.HandedOver }),
	counter("lock_deadlocks_total", "Cycles of owners that wait for each other's locks, found "+
		"by this proxy.",
		func(st *proxy.Stats) uint64 { return st.Locks.Deadlocks }),
	counter("fence_refusals_total", "FENCEs whose token did not hold the lock (any more): "+
		"nothing was run.",
		func(st *proxy.Stats) uint64 { return st.Locks.Fenced }),
	labeled("once_total", "ONCEs and DONEs, by what happened: hit (the value was there), maker (the "+
		"caller was told to make it), shared (the caller waited for it), stored, or given_up.",
		prometheus.CounterValue, "event", func(st *proxy.Stats) []sample {
			c := &st.Locks
			return []sample{{"hit", float64(c.OnceHits)}, {"maker", float64(c.OnceMakers)},
				{"shared", float64(c.OnceShared)}, {"stored", float64(c.OnceStored)},
				{"given_up", float64(c.OnceGivenUp)}}
		}),
	gauge("lock_waiters", "Clients that wait for a lock at this proxy.",
		func(st *proxy.Stats) float64 { return float64(st.Locks.Waiters) }),
	gauge("lock_oldest_wait_seconds", "The longest time that a client has been waiting for a "+
		"lock at this proxy; 0 if none waits.",
		func(st *proxy.Stats) float64 { return st.Locks.OldestWait.Seconds() }),
	gauge("locks_waited_for", "Locks for which clients wait at this proxy.",
		func(st *proxy.Stats) float64 { return float64(st.Locks.Queues) }),
	gauge("locks_held", "Locks that were taken through this proxy and have not been seen to "+
		"end; beyond a hundred thousand some are not counted.",
		func(st *proxy.Stats) float64 { return float64(st.Locks.Holding) }),
}

func commandSamples(st *proxy.Stats) (list []sample) {
	for kind := range proxy.Kinds {
		list = append(list, sample{proxy.Kind(kind).String(), float64(st.Commands[kind])})
	}
	return list
}

func gauge(name, help string, read func(*proxy.Stats) float64) reading {
	return reading{prometheus.NewDesc("lockproxy_"+name, help, nil, nil), prometheus.GaugeValue,
		func(st *proxy.Stats) []sample { return []sample{{value: read(st)}} }}
}

func counter(name, help string, read func(*proxy.Stats) uint64) reading {
	return reading{prometheus.NewDesc("lockproxy_"+name, help, nil, nil), prometheus.CounterValue,
		func(st *proxy.Stats) []sample { return []sample{{value: float64(read(st))}} }}
}

func labeled(
	name, help string, kind prometheus.ValueType, label string, read func(*proxy.Stats) []sample,
) reading {
	return reading{prometheus.NewDesc("lockproxy_"+name, help, []string{label}, nil), kind, read}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
