package cluster

import (
	"errors"

	"lockproxy/internal/resp"
)

var (
	errNotWritten  = errors.New("the last write was not to that key")
	errWriterEnded = errors.New("the connection on which it was written has ended")
	errUnanswered  = errors.New("it stands behind requests that have not been answered")
)

// waitAtKey is LOCKPROXY.WAIT key [numlocal] numreplicas timeout, by which lock commands have
// confirmed what was written. It is WAIT, or with numlocal WAITAOF, on the connection to the node
// that has answered the last request, if that was for the key: on any other, WAIT counts replicas
// that may not have the write.
func waitAtKey(c *Conn, q *query) {
	name, numbers := []byte("WAIT"), len(q.args)-2
	if numbers != 2 && numbers != 3 {
		c.replies.answer([]byte("-ERR wrong number of arguments for 'lockproxy.wait' command\r\n"))
		return
	}
	by, err := c.replies.answeredBy, error(nil)
	switch {
	case c.replies.head != nil:
		err = errUnanswered
	case by.node == nil || by.slot != Slot(q.args[1]):
		err = errNotWritten
	case by.node.ended:
		err = errWriterEnded
	}
	if err != nil {
		c.replies.answer(c.Failure(c.cluster.String(), true, err))
		return
	}
	if numbers == 3 {
		name = []byte("WAITAOF")
	}
	words := append([][]byte{name}, q.args[2:]...)
	c.send(newRequest(resp.AppendCommand(nil, words...), -1), by.node)
	c.replies.answeredBy = by // it can be asked again
}
