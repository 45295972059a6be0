package testredis

// Whether a cluster's nodes agree with one another, and waiting until they do.

import (
	"slices"
	"strings"
	"time"
)

// WaitOK returns when each running node takes the cluster for whole, and all agree on who serves
// which slot and on the masters' epochs.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	c.waitFor("the cluster is whole", c.agrees)
}

// agrees reports whether all running nodes take the cluster for whole, and agree.
func (c *Cluster) agrees() bool {
	view := ""
	for _, s := range c.alive() {
		if c.clusterInfo(s, "cluster_state") != "ok" {
			return false
		}
		masters := mastersSeen(s.Ask("CLUSTER", "NODES"))
		if view == "" {
			view = masters
		}
		if masters != view {
			return false
		}
	}
	return true
}

// mastersSeen is the masters that aren't taken for down, with their epochs and slots, in an answer
// to CLUSTER NODES. The epochs are a part of it because a node that is given a slot takes a new one
// only if it doesn't have the greatest that it knows of: given one by a master whose last epoch it
// has not heard of yet, it would lose it to that master's late messages, and then each of the two
// would say MOVED to the other.
func mastersSeen(nodes string) string {
	var lines []string
	for line := range strings.SplitSeq(nodes, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "master") ||
			strings.Contains(fields[2], "fail") {
			continue
		}
		slots := slices.DeleteFunc(fields[8:],
			func(f string) bool { return strings.HasPrefix(f, "[") })
		lines = append(lines, fields[0]+" epoch "+fields[6]+" "+strings.Join(slots, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (c *Cluster) clusterInfo(s *Server, field string) string {
	for line := range strings.SplitSeq(s.Ask("CLUSTER", "INFO"), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

func (c *Cluster) waitFor(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(agreeTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, s := range c.alive() {
				c.t.Logf("the node on port %d, state %s, says:\n%s", s.port,
					c.clusterInfo(s, "cluster_state"), s.Ask("CLUSTER", "NODES"))
			}
			c.t.Fatalf("it is not so that %s", what)
		}
	}
}

// must sends a command that answers OK.
func (c *Cluster) must(s *Server, command ...string) {
	c.t.Helper()
	// Redis writes and syncs its file first, for which a busy disk needs its time.
	if got := s.askWithin(10*time.Second, command...); got != "+OK" {
		c.t.Fatalf("%s at port %d: %s", strings.Join(command[:min(len(command), 5)], " "), s.port,
			got)
	}
}
