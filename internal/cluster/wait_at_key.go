package cluster

import (
	"errors"

	"lockproxy/internal/resp"
)

var errNotLast = errors.New("the last request was not for that key, or has no answer, " +
	"or its node is lost")

// waitAtKey is LOCKPROXY.WAIT key [numlocal] numreplicas timeout, by which lock commands have
// confirmed what was written. It is WAIT, or with numlocal WAITAOF, on the connection to the node
// that has answered the last request, if that was for the key. On any other connection WAIT counts
// replicas that may not have the write.
func waitAtKey(c *Conn, q *query) {
	name, numbers := []byte("WAIT"), len(q.args)-2
	if numbers != 2 && numbers != 3 {
		c.replies.answer([]byte("-ERR wrong number of arguments for 'lockproxy.wait' command\r\n"))
		return
	}
	by := c.replies.answeredBy
	if c.replies.head != nil || by.node == nil || by.slot != Slot(q.args[1]) || by.node.ended {
		c.replies.answer(c.Failure(c.cluster.String(), true, errNotLast))
		return
	}
	if numbers == 3 {
		name = []byte("WAITAOF")
	}
	words := append([][]byte{name}, q.args[2:]...)
	r := newRequest(resp.AppendCommand(nil, words...), -1)
	r.intercept = noRedirects
	c.send(r, by.node)
	c.replies.blocks()
	c.replies.answeredBy = by // it can be asked again
}
