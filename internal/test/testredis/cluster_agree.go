package testredis

// Whether a cluster's nodes agree with one another, and waiting until they do.

import (
	"slices"
	"strings"

	"lockproxy/internal/test/testwait"
)

// WaitOK returns when each running node takes the cluster for whole, and all agree on who serves
// which slot, on the masters' epochs, and on whose replica is who, and tell clients of all, by the
// ports that these can use.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	c.talkUntil("the cluster is whole", c.agrees)
}

// agrees reports whether all running nodes take the cluster for whole, and agree.
func (c *Cluster) agrees() bool {
	view := ""
	for _, s := range c.alive() {
		says := s.askAll([][]string{{"CLUSTER", "INFO"}, {"CLUSTER", "NODES"}, {"CLUSTER", "SLOTS"}})
		if !strings.Contains(string(says[0]), "cluster_state:ok\r\n") {
			return false
		}
		_, nodes, _ := strings.Cut(string(says[1]), "\r\n")
		seen := nodesSeen(nodes)
		if view == "" {
			view = seen
		}
		if seen != view || !namesReplicas(string(says[2]), nodes) || c.namesTLS(string(says[2])) {
			return false
		}
	}
	return true
}

// handshake is what CLUSTER NODES says of an address whose node has not told its name yet.
const handshake = "handshake"

// nodesSeen is the masters that aren't taken for down, with their epochs and slots, and the replicas
// with their masters, in an answer to CLUSTER NODES. The epochs are a part of it because a node that
// is given a slot takes a new one only if it doesn't have the greatest that it knows of: given one
// by a master whose last epoch it has not heard of yet, it would lose it to that master's late
// messages, and then each of the two would say MOVED to the other.
func nodesSeen(nodes string) string {
	var lines []string
	for line := range strings.SplitSeq(nodes, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 8 || strings.Contains(fields[2], "fail") || fields[2] == handshake {
			continue
		}
		if strings.Contains(fields[2], "slave") {
			lines = append(lines, fields[0]+" of "+fields[3])
			continue
		}
		slots := slices.DeleteFunc(fields[8:],
			func(f string) bool { return strings.HasPrefix(f, "[") })
		lines = append(lines, fields[0]+" epoch "+fields[6]+" "+strings.Join(slots, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// namesReplicas reports whether an answer to CLUSTER SLOTS names all replicas of the masters in it
// that one to CLUSTER NODES has. Redis names none of which it doesn't know how much it has.
func namesReplicas(slots, nodes string) bool {
	for line := range strings.SplitSeq(nodes, "\n") {
		fields := strings.Fields(line)
		if len(fields) >= 8 && strings.Contains(fields[2], "slave") &&
			!strings.Contains(fields[2], "fail") && strings.Contains(slots, fields[3]) &&
			!strings.Contains(slots, fields[0]) {
			return false
		}
	}
	return true
}

// namesTLS reports whether an answer to CLUSTER SLOTS, by a connection without TLS, names a port for
// TLS. A node says so of another one until that has told it of both.
func (c *Cluster) namesTLS(slots string) bool {
	return slices.ContainsFunc(c.Nodes, func(s *Server) bool {
		port, ok := s.tlsPort()
		return ok && strings.Contains(slots, ":"+port+"\r\n")
	})
}

func (c *Cluster) clusterInfo(s *Server, field string) string {
	for line := range strings.SplitSeq(s.Ask("CLUSTER", "INFO"), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

// gossipAfter is after how many looks for what they should agree on the nodes are made to talk.
const gossipAfter = 20

// gossip has each running node tell each other what it knows. By themselves they do so seldom if
// they are patient with each other. To be introduced again does them no harm, once they have done
// with the last time: on a busy machine that takes long.
func (c *Cluster) gossip() {
	for _, s := range c.alive() {
		nodes := s.Ask("CLUSTER", "NODES")
		if strings.Contains(nodes, handshake) {
			continue
		}
		if master := masterAbove(nodes); master != "" {
			s.Ask("CLUSTER", "REPLICATE", master)
		}
		for _, other := range c.alive() {
			if other != s {
				s.Ask("CLUSTER", "MEET", "127.0.0.1", other.busPort())
			}
		}
	}
}

// masterAbove is the master of the master of the node that has answered CLUSTER NODES, if that is a
// replica by now. A replica that hears of that, before it hears who has taken the slots, stays with
// its master.
func masterAbove(nodes string) string {
	masters, mine := map[string]string{}, ""
	for line := range strings.SplitSeq(nodes, "\n") {
		fields := strings.Fields(line)
		if len(fields) >= 8 && strings.Contains(fields[2], "slave") {
			if masters[fields[0]] = fields[3]; strings.Contains(fields[2], "myself") {
				mine = fields[3]
			}
		}
	}
	return masters[mine]
}

// talkUntil is waitFor what the nodes tell each other.
func (c *Cluster) talkUntil(what string, done func() bool) {
	c.t.Helper()
	looks := 0
	c.waitFor(what, func() bool {
		if looks++; looks%gossipAfter == 0 {
			c.gossip()
		}
		return done()
	})
}

func (c *Cluster) waitFor(what string, done func() bool) {
	c.t.Helper()
	if testwait.Holds(done) {
		return
	}
	for _, s := range c.alive() {
		c.t.Logf("the node on port %d, state %s, says:\n%s", s.port,
			c.clusterInfo(s, "cluster_state"), s.Ask("CLUSTER", "NODES"))
	}
	c.t.Fatalf("it is not so that %s", what)
}

// must sends a command that answers OK.
func (c *Cluster) must(s *Server, command ...string) {
	c.t.Helper()
	if got := s.Ask(command...); got != "+OK" {
		c.t.Fatalf("%s at port %d: %s", strings.Join(command[:min(len(command), 5)], " "), s.port,
			got)
	}
}
