package badlink

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"time"

	"lockproxy/internal/test/wire"
)

// tear ends a connection within a reply.
type tear struct {
	reply []byte
	at    int // so many bytes of it pass
	reset bool
	torn  chan struct{} // closed when it has happened
}

// Tear ends the connection that the far end sends reply on next, once so many bytes of that have
// passed. reply must come in one piece. The channel closes when that has happened.
func (l *Link) Tear(reply string, at int, reset bool) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tear = &tear{reply: []byte(reply), at: at, reset: reset, torn: make(chan struct{})}
	return l.tear.torn
}

// tornIn returns how much of data passes before the connection ends, if it does.
func (l *Link) tornIn(data []byte) (passes []byte, t *tear) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tear == nil {
		return data, nil
	}
	i := bytes.Index(data, l.tear.reply)
	if i < 0 {
		return data, nil
	}
	t, l.tear = l.tear, nil
	return data[:i+t.at], t
}

// Insertion returns what follows once so many replies have passed by a connection, 0 when it opens:
// now goes in one write with the last of them, later a moment after that.
type Insertion func(replies int) (now, later string)

// Insert has more sent to clients than the server sends, on connections opened from now on.
func (l *Link) Insert(what Insertion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.insert = what
}

// insertedLater is how much later the second part of an insertion goes than the first.
const insertedLater = 2 * time.Millisecond

// replies are what a connection's server sends, with what is inserted.
type replies struct {
	insert Insertion
	write  func([]byte) error
	begun  []byte // what has passed of a reply that is not whole
	passed int
	out    []byte
}

// begin sends what comes before all replies.
func (r *replies) begin() error {
	if err := r.follow(); err != nil {
		return err
	}
	return r.flush()
}

// pass passes bytes, and inserts what is to follow each reply.
func (r *replies) pass(data []byte) error {
	for len(data) > 0 {
		all := slices.Concat(r.begun, data)
		raw, err := wire.ReadReply(bufio.NewReader(bytes.NewReader(all)), wire.Either)
		n := len(raw) - len(r.begun)
		r.out, data = append(r.out, data[:n]...), data[n:]
		if r.begun = all; err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		r.begun = nil
		r.passed++
		if err := r.follow(); err != nil {
			return err
		}
	}
	return r.flush()
}

// follow inserts what follows now.
func (r *replies) follow() error {
	now, later := r.insert(r.passed)
	if r.out = append(r.out, now...); later == "" {
		return nil
	}
	err := r.flush()
	time.Sleep(insertedLater)
	r.out = append(r.out, later...)
	return err
}

func (r *replies) flush() (err error) {
	if len(r.out) > 0 {
		err = r.write(r.out)
	}
	r.out = nil
	return err
}
