package cluster

import (
	"errors"
	"io"

	"lockproxy/internal/resp"
)

const (
	// minRead and maxRead bound the memory that replies are read into, bytes. It grows as needed.
	minRead, maxRead = 1 << 10, 64 << 10
	// streamFrom is how many bytes of a reply are gathered before they are delivered without the
	// rest.
	streamFrom = 64 << 10
)

// read relays replies until the connection ends.
func (n *node) read() {
	err := n.copyReplies()
	n.nc.Close()
	n.c.mu.Lock()
	n.end(err)
	n.c.mu.Unlock()
}

func (n *node) copyReplies() error {
	buf, used := make([]byte, minRead), 0
	for {
		k, err := n.nc.Read(buf[used:])
		if perr := n.relay(buf[used : used+k]); perr != nil {
			return perr
		}
		if errors.Is(err, io.EOF) {
			return errors.New("closed by the node")
		}
		if err != nil {
			return err
		}
		full := k == len(buf)-used
		used += k // replies stay in buf until the client has read them
		if len(buf)-used < len(buf)/4 {
			size := len(buf)
			if full && size < maxRead {
				size *= 2
			}
			buf, used = make([]byte, size), 0
		}
	}
}

// relay handles what was read. It waits while the client leaves too much unread.
func (n *node) relay(data []byte) error {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(data) > 0 && !n.ended {
		k, done, err := n.in.scan.Scan(data)
		if err != nil {
			return err
		}
		if !n.in.discarding {
			n.in.partial.add(data[:k])
		}
		data = data[k:]
		switch {
		case done:
			if err := n.complete(); err != nil {
				return err
			}
		case n.in.partial.size >= streamFrom:
			n.relayPartial()
		}
	}
	for c.replies.unread > maxUnread && !n.ended && !c.replies.needs(n) {
		c.room.Wait()
	}
	return nil
}

// relayPartial delivers what has come of a large reply, if that is certain to be the client's.
func (n *node) relayPartial() {
	h, p := n.in.scan.Head(), n.waiting.head()
	switch {
	case p == nil || h.IsError() || h.Type == '>' || p.confirms != 0 || n.isUnasked(h):
	case p.req.finish != nil || p.req.internal:
		if n.in.partial.size > maxJoined {
			n.in.partial, n.in.discarding = pieces{}, true
		}
	default:
		p.streamed = true
		n.c.replies.deliver(p.req, n.in.partial)
		n.in.partial = pieces{}
	}
}

var tooLarge = resp.AppendError(nil,
	"ERR the reply of a node is too large to be put together with those of others")

// complete relays the end of a reply.
func (n *node) complete() error {
	h, reply := n.in.scan.Head(), n.in.partial
	n.in.partial = pieces{}
	if n.in.discarding {
		n.in.discarding = false
		reply.add(tooLarge)
	}
	if n.isUnasked(h) {
		n.c.subs.unasked(n, h, reply)
		return nil
	}
	p := n.waiting.head()
	if p == nil {
		return errors.New("the node sent a reply that nobody had asked for")
	}
	if p.confirms != 0 && n.c.subs.confirmed(n, p, h, &reply) {
		return nil
	}
	n.waiting.pop()
	n.sentCount = max(n.sentCount-1, 0)
	n.c.answers.answered(n, p, h, reply)
	return nil
}
