package passthrough

// How a session goes by its home.

import (
	"context"
	"time"

	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

// homeWay is a session's way to its home.
type homeWay struct {
	*owed
	lastHome *home       // that was opened last, nil if none ever was
	wbuf     []byte      // not yet sent
	idle     *time.Timer // calls closeIdle; nil if nothing does
}

// need says whether a home is needed, for closeIdle.
type need uint8

const (
	recent   need = iota // since closeIdle looked
	held                 // the session is about to use it
	unneeded             // a home that isn't open was closed for that
)

// openHome dials the session's home, which is set up as the session has set itself up.
func (w *homeWay) openHome(ctx context.Context) error {
	if w.lastHome != nil {
		w.out.hurry(1) // it may be waiting for the client
		<-w.lastHome.ended
		w.out.hurry(-1)
	}
	w.mu.Lock()
	setup := w.ledger.setup()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.lanes.dialTimeout)
	defer cancel()
	conn, err := w.lanes.upstream.Dial(ctx, setup)
	if w.lanes.connected != nil {
		w.lanes.connected(err)
	}
	if err != nil {
		return err
	}
	h := &home{owed: w.owed, conn: conn, way: upstream.Raw(conn), ended: make(chan struct{})}
	if h.socket, _ = h.way.(*socket.Socket); h.socket != nil {
		h.reg = w.lanes.loops.NewRegistration(h, h.socket.Raw())
	}
	w.mu.Lock()
	if before := w.lastHome; before != nil {
		w.writes = max(w.writes, Elsewhere)
		if before.conn.RemoteAddr().String() != conn.RemoteAddr().String() {
			w.writes = Unknown
		}
	}
	w.home, w.lastHome, w.need = h, h, held
	if w.end >= ClientGone {
		conn.Close()
	}
	if every := w.lanes.homeIdle; every > 0 && w.idle == nil {
		w.idle = time.AfterFunc(every, w.closeIdle) // Wait stops it
	}
	w.mu.Unlock()
	w.lanes.homes.Add(1)
	if !h.park() {
		go h.Resume() // ends when conn does; End closes conn and Wait waits
	}
	return nil
}

// atHome makes ready for a request that goes by the home, and reports whether that is open. If it
// was lost since Connect, what was to go by it has been answered, and is dropped.
func (w *homeWay) atHome() (open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.route == dropped {
		w.wbuf = keepBuffer(w.wbuf)
	}
	w.setRoute(byHome)
	if w.home != nil {
		w.need = held
	}
	return w.home != nil
}

// queue gathers what goes by the home. What isn't worth that it sends, uncopied, behind what has
// been gathered.
func (w *homeWay) queue(raw []byte) {
	switch {
	case len(raw) >= newBuffer:
		w.flushHome()
		w.writeHome(raw)
	case w.wbuf == nil:
		w.wbuf = append(takeBuffer(), raw...)
	default:
		w.wbuf = append(w.wbuf, raw...)
	}
	if len(raw) > bufSize {
		w.mu.Lock()
		w.stay.large = largeFor
		w.mu.Unlock()
	}
	if len(w.wbuf) >= bufSize {
		w.flushHome()
	}
}

// flushHome sends what is gathered.
func (w *homeWay) flushHome() {
	if len(w.wbuf) > 0 {
		w.writeHome(w.wbuf)
		w.wbuf = keepBuffer(w.wbuf)
	}
}

// writeHome sends raw by the home, if that is still there.
func (w *homeWay) writeHome(raw []byte) {
	w.mu.Lock()
	home := w.home
	if w.route != byHome {
		home = nil
	}
	w.mu.Unlock()
	if home == nil {
		return
	}
	w.out.hurry(1) // it may take no more before what it says has been read
	_, err := home.way.Write(raw)
	w.out.hurry(-1)
	if err != nil {
		home.close() // the reader reports the loss
	}
}

// tryHome gathers a request for tryFlushHome: a pipeline goes in one piece, as it came.
func (w *homeWay) tryHome(e entry, raw []byte) (done bool) {
	w.mu.Lock()
	if w.home == nil || w.home.socket == nil || w.route != byHome || w.stay.begun || w.ledger.len() >= maxEntries {
		w.mu.Unlock()
		return false
	}
	w.ledger.push(e)
	w.mu.Unlock()
	if w.wbuf == nil {
		w.wbuf = takeBuffer()
	}
	w.wbuf = append(w.wbuf, raw...)
	return true
}

// tryFlushHome sends what is gathered, as far as that needs no waiting. It returns false if there is
// a rest.
func (w *homeWay) tryFlushHome() (all bool) {
	w.mu.Lock()
	home := w.home
	if w.route != byHome { // it was lost, and what was gathered is answered
		home = nil
	}
	w.mu.Unlock()
	sent := len(w.wbuf)
	if home != nil {
		n, err := home.socket.TryWrite(w.wbuf)
		if err != nil {
			home.close() // the reader reports the loss
		} else {
			sent = n
		}
	}
	if sent < len(w.wbuf) {
		w.wbuf = w.wbuf[:copy(w.wbuf, w.wbuf[sent:])]
		w.mu.Lock()
		w.need = held
		w.mu.Unlock()
		return false
	}
	w.wbuf = keepBuffer(w.wbuf)
	return true
}

// closeIdle closes the home if nothing has needed it since this was last called.
func (w *homeWay) closeIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end >= ClientGone || w.route == gone {
		return
	}
	busy := w.stay.any() || w.route != byLane && !w.ledger.empty() || !w.ledger.replaceable()
	switch {
	case w.home == nil:
	case w.need == recent:
		w.need = unneeded
	case w.need == unneeded && !busy:
		w.home.close()
		w.home = nil
	}
	w.idle.Reset(w.lanes.homeIdle)
}

// closeHomeLocked tells the upstream that nothing more is asked by the home. mu is held.
func (w *homeWay) closeHomeLocked() {
	if w.home == nil || w.home.closing {
		return
	}
	w.home.closing = true // once the upstream has closed too this fails, and replies may be left to read
	w.home.conn.SetReadDeadline(time.Now().Add(linger))
	if half, ok := w.home.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		w.home.conn.Close()
	}
	w.home.reg.Wake() // who reads it minds the deadline
}
