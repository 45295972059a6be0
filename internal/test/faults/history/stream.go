//go:build linux

package history

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
)

// Stream writes operations as they begin and end, so that a
// killed process leaves a record. It is for one goroutine.
type Stream struct {
	out  io.Writer
	next int
	ids  map[*Op]int
}

// noted is a line of a Stream: the operation as it is known so far.
type noted struct {
	ID int `json:"id"`
	Op Op  `json:"op"`
}

// NewStream returns a Stream to out. Each record is one Write.
func NewStream(out io.Writer) *Stream { return &Stream{out: out, ids: map[*Op]int{}} }

// Begin records an invocation before it is sent.
func (s *Stream) Begin(o Op) *Op {
	op := &o
	op.Call = Now()
	s.next++
	s.ids[op] = s.next
	s.write(s.next, o)
	return op
}

// End records a completion.
func (s *Stream) End(op *Op, change func(*Op)) {
	now := Now()
	change(op)
	if op.Outcome != Unknown {
		op.Return = now
	}
	s.write(s.ids[op], *op)
	delete(s.ids, op)
}

// Add records an operation that is over.
func (s *Stream) Add(o Op) {
	s.next++
	s.write(s.next, o)
}

func (s *Stream) write(id int, o Op) {
	line, _ := json.Marshal(noted{id, o}) // of plain fields: it can't fail
	s.out.Write(append(line, '\n'))
}

// Collector gathers what the Streams of several processes have written.
type Collector struct {
	mu  sync.Mutex
	ops []Op // guarded by mu
}

// Collect reads a Stream until its end and ignores an incomplete last line.
func (c *Collector) Collect(in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	ops := map[int]int{} // indices in c.ops, by id
	for lines.Scan() {
		var n noted
		if json.Unmarshal(lines.Bytes(), &n) != nil {
			continue
		}
		c.mu.Lock()
		if place, ok := ops[n.ID]; ok {
			c.ops[place] = n.Op
			delete(ops, n.ID)
		} else {
			ops[n.ID] = len(c.ops)
			c.ops = append(c.ops, n.Op)
		}
		c.mu.Unlock()
	}
}

// Died records that a client's process was killed at a time, which ended its session locks.
// Everything it wrote must have been collected.
func (c *Collector) Died(client int, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := map[int64]Op{}
	for _, o := range c.ops {
		switch {
		case o.Client != client:
		case o.Session && o.Acquired():
			held[o.Result] = o
		case o.Kind == Unlock || o.Kind == Lost:
			delete(held, o.Token)
		}
	}
	for token, o := range held {
		c.ops = append(c.ops, Op{Client: client, Kind: Lost, Key: o.Key, Proxy: o.Proxy,
			Token: token, Call: at})
	}
}

// Drain returns what was collected since the last Drain. No Stream must be open.
func (c *Collector) Drain() []Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops := c.ops
	c.ops = nil
	return ops
}
