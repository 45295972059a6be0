package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// infoSection is the name of the proxy's own section of INFO.
const infoSection = "lockproxy"

// namesInfoSection reports whether an INFO asks for the proxy's section by name. INFO without
// names, or with all or everything, is the upstream's alone: programs that parse it see just what
// Redis says.
func namesInfoSection(args [][]byte) bool {
	return slices.ContainsFunc(args[1:], func(name []byte) bool {
		return strings.EqualFold(string(name), infoSection)
	})
}

// answerInfo answers INFO with the proxy's section added to what the upstream says. The upstream is
// asked first: a user who may not INFO there may not here.
func answerInfo(x *exchange, req resp.Request) (done bool) {
	return namesInfoSection(req.Args) && x.answerAfter(func(replies [][]byte, proto int) []byte {
		return addSection(replies[0], x.server.Stats().section(), len(req.Args) == 2, proto)
	}, resp.AppendCommand(nil, req.Args...)) // the embedded store reads arrays only
}

// addSection puts section behind what an upstream answered to INFO, in RESP3 a text with its
// format. An error is relayed, except that of the embedded store, which knows few sections and
// says so; Redis answers with an empty text.
func addSection(raw []byte, section string, alone bool, proto int) []byte {
	v, err := resp.ParseValue(raw)
	if err == nil && alone && v.Type == '-' && bytes.HasPrefix(v.Text, []byte("section (")) {
		v = resp.Value{Type: '$'}
		if proto == 3 {
			v.Type = '='
		}
	}
	if err != nil || v.Type != '$' && v.Type != '=' {
		return raw
	}
	text := withoutSection(string(v.Text))
	if strings.TrimPrefix(text, "txt:") != "" {
		text += "\r\n" // as Redis does between sections
	}
	text += section
	if v.Type == '=' && !strings.HasPrefix(text, "txt:") {
		text = "txt:" + text
	}
	return fmt.Appendf(nil, "%c%d\r\n%s\r\n", v.Type, len(text), text)
}

// sectionTitle begins the proxy's section.
const sectionTitle = "# Lockproxy\r\n"

// withoutSection removes from an INFO the section of another proxy behind this one.
func withoutSection(text string) string {
	before, section, found := strings.Cut(text, sectionTitle)
	if !found {
		return text
	}
	_, after, more := strings.Cut(section, "\r\n\r\n")
	if !more {
		return strings.TrimSuffix(before, "\r\n") // which stood between two sections
	}
	return before + after
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// section is the proxy's section of INFO.
func (st Stats) section() string {
	var b strings.Builder
	b.WriteString(sectionTitle)
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
	line("total_net_input_bytes", st.BytesIn)
	line("total_net_output_bytes", st.BytesOut)
	line("relayed_commands", st.Commands[Relayed])
	line("lock_commands", locks)
	line("upstream", st.Upstream)
	line("upstream_status", status)
	if st.Cluster {
		line("upstream_cluster_masters", st.ClusterMasters)
		line("upstream_cluster_whole", btoi(st.ClusterWhole))
	}
	line("upstream_connects", st.Connects)
	line("upstream_connect_failures", st.ConnectFailures)
	line("upstream_lanes", st.Connections.Lanes)
	line("upstream_shared_clients", st.Connections.Shared)
	line("upstream_homes", st.Connections.Homes)
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
	return b.String()
}
