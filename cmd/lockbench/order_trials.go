package main

import (
	"bufio"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// orderTrials are the connections of the trials of one case.
type orderTrials struct {
	addr    string
	way     string
	gap     time.Duration
	kinds   [2]orderKind
	clients [2]*rawClient // A and B; nil if the kind needs a fresh connection
	monitor *rawClient
	redis   *rawClient
}

func newOrderTrials(b *bench, at *target, c orderCase) (t *orderTrials, err error) {
	t = &orderTrials{addr: at.server.addr, way: at.name, gap: orderGaps[c.gap],
		kinds: [2]orderKind{orderKinds[c.first], orderKinds[c.second]}}
	opened := t
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	redis := b.redis
	if at.name == viaMasters {
		redis = b.masters.nodes[0].addr
	}
	if t.redis, err = dial(redis); err != nil {
		return nil, err
	}
	if t.monitor, err = dial(redis); err != nil {
		return nil, err
	}
	t.monitor.in = bufio.NewReaderSize(t.monitor.way, maxMonitorLine)
	if _, err = t.monitor.do("MONITOR"); err != nil {
		return nil, err
	}
	for i := range t.clients {
		if t.clients[i], err = t.connect(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// connect opens a client that has been answered, so that it is served by whatever serves clients.
func (t *orderTrials) connect() (*rawClient, error) {
	c, err := dial(t.addr)
	if err != nil {
		return nil, err
	}
	for range 2 { // by its own connection, and then by a shared one
		if _, err := c.do("PING"); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (t *orderTrials) close() {
	for _, c := range []*rawClient{t.clients[0], t.clients[1], t.monitor, t.redis} {
		if c != nil {
			c.close()
		}
	}
}

// try is one trial. kept says that B's request was sent after the gap, and not much later.
func (t *orderTrials) try(n int) (right, kept bool, err error) {
	tags := [2]string{fmt.Sprintf(firstMaster+"a:%d", n), fmt.Sprintf(firstMaster+"b:%d", n)}
	var raw [2][]byte
	for i, k := range t.kinds {
		if k.prepare != nil {
			if err := t.clients[i].skip(1, k.prepare(tags[i])); err != nil {
				return false, false, err
			}
		}
		for _, request := range k.request(t.way, tags[i]) {
			raw[i] = resp.AppendCommand(raw[i], request...)
		}
	}
	clients := t.clients
	for i := len(clients) - 1; i >= 0; i-- { // A's own connection is the last that is opened
		if t.kinds[i].fresh {
			if clients[i], err = dial(t.addr); err != nil {
				return false, false, err
			}
			defer clients[i].close()
		}
	}
	took, err := t.send(clients, raw)
	if err != nil {
		return false, false, err
	}
	first, err := t.whoWasFirst(tags)
	if err != nil {
		return false, false, err
	}
	for i, k := range t.kinds {
		if err := t.finish(clients[i], k, tags[i]); err != nil {
			return false, false, err
		}
	}
	return first == 0, took < 2*t.gap, nil
}

// send sends A's request and after the gap B's. took is the gap as it was.
func (t *orderTrials) send(clients [2]*rawClient, raw [2][]byte) (took time.Duration, err error) {
	runtime.LockOSThread() // pauses are exact for a thread
	defer runtime.UnlockOSThread()
	if _, err := clients[0].way.Write(raw[0]); err != nil {
		return 0, err
	}
	sent := time.Now()
	for took = 0; took < t.gap; took = time.Since(sent) {
		pauseExactly(t.gap - took)
	}
	_, err = clients[1].way.Write(raw[1])
	return took, err
}

// firstMaster is a hash tag whose slot, 3300, is the first of three masters'. lockproxy subscribes
// to channels there, too.
const firstMaster = "{b}"

// whoWasFirst reads MONITOR's lines until both tags were seen.
func (t *orderTrials) whoWasFirst(tags [2]string) (first int, err error) {
	seen := [2]bool{}
	for first = -1; !seen[0] || !seen[1]; {
		line, err := t.monitor.receive()
		if err != nil {
			return 0, err
		}
		for i, tag := range tags {
			// As a subscriber's UNSUBSCRIBE has the same tag as what prepared it, commands count.
			if !seen[i] && strings.Contains(line.text, `"`+tag+`"`) && !t.prepared(i, line.text) {
				if seen[i] = true; first < 0 {
					first = i
				}
			}
		}
	}
	return first, nil
}

// prepared reports whether a line is of what prepared a request.
func (t *orderTrials) prepared(i int, line string) bool {
	return t.kinds[i].prepare != nil && strings.Contains(line, `"`+t.kinds[i].prepare("")[0]+`"`)
}

// finish reads the replies, and leaves the connection as it was.
func (t *orderTrials) finish(c *rawClient, k orderKind, tag string) error {
	if k.redis != nil {
		if err := t.redis.skip(1, k.redis(tag)); err != nil {
			return err
		}
	}
	if err := c.skip(k.replies, nil); err != nil {
		return err
	}
	if k.after != nil {
		return c.skip(1, k.after(tag))
	}
	return nil
}

// skip sends a command, if there is one, and reads so many replies of any kind.
func (c *rawClient) skip(replies int, command []string) error {
	if command != nil {
		if err := c.send(command...); err != nil {
			return err
		}
	}
	for range replies {
		raw, _, err := resp.ReadReply(c.in, maxOrderReply)
		if err != nil {
			return err
		}
		if raw[0] == '-' {
			return errors.New(strings.TrimSpace(string(raw[1:])))
		}
	}
	return nil
}

// maxMonitorLine is more than a line of MONITOR with the source of all lock scripts, bytes.
const maxMonitorLine = 256 << 10

// maxOrderReply is far more than any of these requests is answered, bytes.
const maxOrderReply = 1 << 10
