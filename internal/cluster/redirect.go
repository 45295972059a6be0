package cluster

import (
	"bytes"
	"strings"

	"lockproxy/internal/resp"
)

// redirection is what a node says instead of running a command. Whatever it is, the command did not run.
type redirection uint8

const (
	notRedirected redirection = iota
	moved                     // the slot is another node's
	ask                       // the slot is on its way to another node, and the key may be there
	tryAgain                  // the slot is on its way, and some of the keys are here, some there
	down                      // nobody serves the slot, or too much of the cluster is out of reach
	demoted                   // the node is no master any more, and has let go what was blocked
)

// redirected reads an error reply, the whole line without "-". For moved and ask it returns the slot and the node.
func redirected(line []byte, asked string) (kind redirection, slot int, addr string) {
	word, rest, _ := strings.Cut(string(line), " ")
	switch word {
	case "MOVED":
		kind = moved
	case "ASK":
		kind = ask
	case "TRYAGAIN":
		return tryAgain, 0, ""
	case "CLUSTERDOWN":
		return down, 0, ""
	case "UNBLOCKED":
		if strings.Contains(rest, "instance state changed") {
			return demoted, 0, ""
		}
		return notRedirected, 0, ""
	default:
		return notRedirected, 0, ""
	}
	number, place, _ := strings.Cut(rest, " ")
	n, ok := resp.ParseInt([]byte(number))
	i := strings.LastIndexByte(place, ':')
	if !ok || n < 0 || n >= Slots || i < 0 {
		return notRedirected, 0, ""
	}
	host := strings.Trim(place[:i], "[]")
	return kind, int(n), nodeAddr(host, place[i+1:], asked)
}

// errorLine is the text of an error reply, without "-" and line end.
func errorLine(raw []byte) []byte { return bytes.TrimRight(raw[1:], "\r\n") }
