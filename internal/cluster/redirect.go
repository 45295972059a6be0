package cluster

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"lockproxy/internal/resp"
)

// redirection is what a node says instead of running a command: the command has not run.
type redirection uint8

const (
	notRedirected redirection = iota
	moved                     // another node serves the slot
	ask                       // the slot is moving to another node, which may have the key
	tryAgain                  // the slot is moving, and some of the keys have gone already
	down                      // no node serves the slot, or too few nodes reach each other
	demoted                   // the node is no master any more; it has ended a blocking command
	readOnly                  // the node is no master any more; it has refused a write
)

// redirections are the first words of such errors.
var redirections = map[string]redirection{"MOVED": moved, "ASK": ask, "TRYAGAIN": tryAgain,
	"CLUSTERDOWN": down, "UNBLOCKED": demoted, "READONLY": readOnly}

// parseRedirect reads an error reply, without "-" and line end, of the node at asked. moved and ask
// have a slot and the address of the node to ask.
func parseRedirect(line []byte, asked string) (kind redirection, slot int, addr string) {
	word, rest, _ := strings.Cut(string(line), " ")
	kind = redirections[word]
	switch {
	case kind == demoted && !strings.Contains(rest, "instance state changed"):
		return notRedirected, 0, ""
	case kind != moved && kind != ask:
		return kind, 0, ""
	}
	number, place, _ := strings.Cut(rest, " ")
	n, ok := resp.ParseInt([]byte(number))
	i := strings.LastIndexByte(place, ':')
	if !ok || n < 0 || n >= Slots || i < 0 {
		return notRedirected, 0, ""
	}
	return kind, int(n), nodeAddr(strings.Trim(place[:i], "[]"), place[i+1:], asked)
}

// nodeErrors begin the errors of a node that has not run a script and names no other node.
var nodeErrors = []string{"TRYAGAIN Multiple keys request during rehashing of slot",
	"TRYAGAIN Slot is being trimmed",
	"CLUSTERDOWN Hash slot not served", "CLUSTERDOWN The cluster is down"}

// canBeNodes reports whether an error in answer to a script with keys in slot can be the node's. If
// it is the script's, that has run.
func canBeNodes(kind redirection, line []byte, slot int) bool {
	begins := func(text string) bool { return strings.HasPrefix(string(line), text) }
	return slot >= 0 && (kind == moved || kind == ask || slices.ContainsFunc(nodeErrors, begins))
}

// isRedirect reports whether an error reply is a redirection.
func isRedirect(line []byte) bool {
	kind, _, _ := parseRedirect(line, "")
	return kind != notRedirected
}

// lineOf is the text of a reply of one line, without its type and line end.
func lineOf(raw []byte) []byte { return bytes.TrimRight(raw[1:], "\r\n") }

var nodesCommand = resp.AppendCommand(nil, "CLUSTER", "NODES")

// believes reports whether a redirection to addr, which is n's answer to the script p, can be n's
// own: addr is a master in the newest map, or in n's answer to learnFrom. A MOVED changes the map
// for all clients, so n has to have said so since it first answered p.
func (s *nodeSet) believes(n *node, p *part, kind redirection, addr string) bool {
	m := s.c.cluster.slots.Load()
	return m != nil && slices.Contains(m.masters, addr) ||
		s.others[n.addr][addr] && (kind == ask || p.doubtedAt == n.addr)
}

// learnFrom asks n for the masters that the map does not have, since its answer to p named such a
// master: those that serve no slot yet, or have become masters since the map was made. A user can
// lack the right to ask. Then the map, which is refreshed, may know more at p's next try.
func (s *nodeSet) learnFrom(n *node, p *part) {
	r, known := s.c.ownRequest(nodesCommand), false
	r.onAnswer = func(_ *node, h resp.Head) { known = !h.IsError() } // not if n is lost
	r.finish = func(replies [][]byte) []byte {
		if v, _ := resp.ParseValue(replies[0]); known {
			p.doubtedAt, s.others[n.addr] = n.addr, parseNodes(string(v.Text), n.addr)
		}
		return nil
	}
	n.push(&r.one)
}

// parseNodes reads the masters in the reply to CLUSTER NODES of the node at asked: lines of an ID,
// ip:port@port, from Redis 7.0 on with a comma and the host, flags, and more. Without a host, the
// address can be the port at the host of asked, unless another node is known to be there.
func parseNodes(text, asked string) map[string]bool {
	masters, replicas := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at, names, _ := strings.Cut(fields[1], ",")
		at, _, _ = strings.Cut(at, "@")
		i := strings.LastIndexByte(at, ':')
		if i < 0 {
			continue
		}
		host, _, _ := strings.Cut(names, ",")
		addrs, master := replicas, slices.Contains(strings.Split(fields[2], ","), "master")
		if master {
			addrs = masters
		}
		addrs[nodeAddr(at[:i], at[i+1:], asked)] = true
		if master || host != "" {
			addrs[nodeAddr(host, at[i+1:], asked)] = true
		}
	}
	maps.DeleteFunc(masters, func(addr string, _ bool) bool { return replicas[addr] })
	return masters
}
