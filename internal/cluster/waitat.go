package cluster

import (
	"errors"

	"lockproxy/internal/resp"
)

// answeredFor is who has answered the last request of the client's, which was for a slot.
type answeredFor struct {
	slot int
	node *node
}

var (
	errNotWritten  = errors.New("what was written last is not that key")
	errWriterEnded = errors.New("the connection on which it was written has ended")
	errUnanswered  = errors.New("it stands behind requests that have not been answered")
)

// waitAt is LOCKPROXY.WAIT key numreplicas timeout: a WAIT for the node that has answered the last request, which was for that key, on
// the connection by which it did. WAIT on any other counts replicas that may have nothing of what was written. What comes by that name
// from elsewhere, behind other requests or before they are answered, fails.
func waitAt(c *Conn, q *query) {
	if len(q.args) != 4 {
		c.local([]byte("-ERR wrong number of arguments for 'lockproxy.wait' command\r\n"))
		return
	}
	by, err := c.answeredFor, error(nil)
	switch {
	case c.head != nil:
		err = errUnanswered
	case by.node == nil || by.slot != Slot(q.args[1]):
		err = errNotWritten
	case by.node.ended:
		err = errWriterEnded
	}
	if err != nil {
		c.local(c.Failure(c.cluster.String(), true, err))
		return
	}
	raw := resp.AppendCommand(nil, []byte("WAIT"), q.args[2], q.args[3])
	r := newRequest(raw, -1)
	c.kept += len(raw)
	c.enqueue(r)
	c.answeredFor = by // it may be asked again
	by.node.push(&r.one)
}
