package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// answerInfo answers INFO with the proxy's section behind what the upstream says of the others that
// are named. The upstream is asked in any case: a user without the right to INFO there has none
// here. INFO without names, or with all or everything, is the upstream's alone: programs that parse
// it see just what Redis says.
func answerInfo(x *exchange, req resp.Request) (done bool) {
	isOurs := func(name []byte) bool { return strings.EqualFold(string(name), "lockproxy") }
	ask := slices.DeleteFunc(slices.Clone(req.Args), isOurs)
	if len(ask) == len(req.Args) {
		return false
	}
	alone := len(ask) == 1
	if alone {
		ask = append(ask, []byte("clients")) // which every upstream knows; it is not told
	}
	return x.answerAfter(func(raw []byte, _ int) []byte {
		return addSection(raw, x.server.Stats().section(), alone)
	}, ask)
}

// addSection puts section behind what an upstream answered to INFO, or alone in its place, in
// RESP3 a text with its format. An error is relayed.
func addSection(raw []byte, section string, alone bool) []byte {
	v, err := resp.ParseValue(raw)
	if err != nil || v.Type != '$' && v.Type != '=' {
		return raw
	}
	text := strings.TrimPrefix(string(v.Text), "txt:")
	switch {
	case alone:
		text = ""
	case text != "":
		text += "\r\n" // as Redis does between sections
	}
	text += section
	if v.Type == '=' {
		text = "txt:" + text
	}
	return fmt.Appendf(nil, "%c%d\r\n%s\r\n", v.Type, len(text), text)
}

// section is the proxy's section of INFO.
func (st Stats) section() string {
	var b strings.Builder
	b.WriteString("# Lockproxy\r\n")
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	status := "up"
	if !st.UpstreamUp {
		status = "down"
	}
	var locks uint64
	for kind := firstLock; int(kind) < Kinds; kind++ {
		locks += st.Commands[kind]
	}
	line("lockproxy_version", cmp.Or(st.Version, "dev"))
	line("uptime_in_seconds", int64(time.Since(st.Started).Seconds()))
	line("connected_clients", st.Clients)
	line("total_connections_received", st.Accepted)
	line("rejected_connections", st.Rejected)
	line("panics", st.Panics)
	line("total_net_input_bytes", st.BytesIn)
	line("total_net_output_bytes", st.BytesOut)
	line("relayed_commands", st.Commands[Relayed])
	line("lock_commands", locks)
	line("upstream", st.Upstream)
	line("upstream_status", status)
	if st.ClusterMasters > 0 {
		line("upstream_cluster_masters", st.ClusterMasters)
		line("upstream_cluster_whole", btoi(st.ClusterWhole))
	}
	line("upstream_connects", st.Connects)
	line("upstream_connect_failures", st.ConnectFailures)
	line("upstream_lanes", st.Connections.Lanes)
	line("upstream_shared_clients", st.Connections.Shared)
	line("upstream_homes", st.Connections.Homes)
	line("upstream_spares", st.Connections.Spares)
	line("upstream_homes_opened", st.Connections.Opened)
	line("upstream_homes_reused", st.Connections.Reused)
	c := st.Locks
	line("locks_held", c.Holding)
	line("locks_acquired", c.Acquired)
	line("locks_acquired_shared", c.Shared)
	line("locks_renewed", c.Renewed)
	line("locks_refused", c.Held+c.Overtime)
	line("locks_unlocked", c.Unlocked)
	line("locks_forced", c.Forced)
	line("locks_released_on_disconnect", c.Disconnect)
	line("locks_expired", c.Expired)
	line("locks_lost", c.Lost)
	line("lock_errors", c.Failed)
	line("lock_waiters", c.Waiters)
	line("lock_waits_abandoned", c.Gone)
	line("lock_handoffs", c.HandedOver)
	line("lock_deadlocks", c.Deadlocks)
	line("fences_refused", c.Fenced)
	line("once_hits", c.OnceHits)
	line("once_makers", c.OnceMakers)
	line("once_shared", c.OnceShared)
	line("once_stored", c.OnceStored)
	line("once_given_up", c.OnceGivenUp)
	return b.String()
}
