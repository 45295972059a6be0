package cluster

import (
	"sync"
	"time"
)

// deadlines is the part of a net.Conn that bounds Read and Write.
type deadlines struct{ readBy, writeBy deadline }

// SetDeadline bounds Read and Write.
func (d *deadlines) SetDeadline(t time.Time) error {
	d.SetReadDeadline(t)
	return d.SetWriteDeadline(t)
}

// SetReadDeadline bounds Read.
func (d *deadlines) SetReadDeadline(t time.Time) error { return d.readBy.set(t) }

// SetWriteDeadline bounds Write.
func (d *deadlines) SetWriteDeadline(t time.Time) error { return d.writeBy.set(t) }

// deadline wakes what waits for cond when its time has come. cond.L guards it.
type deadline struct {
	cond  *sync.Cond
	at    time.Time   // zero without a deadline
	timer *time.Timer // nil without a deadline
}

// set changes the deadline; the zero time is none.
func (d *deadline) set(t time.Time) error {
	d.cond.L.Lock()
	defer d.cond.L.Unlock()
	d.stop()
	if d.at = t; !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			d.cond.L.Lock()
			defer d.cond.L.Unlock()
			d.cond.Broadcast()
		})
	}
	return nil
}

// passed is called with cond.L held.
func (d *deadline) passed() bool { return !d.at.IsZero() && time.Until(d.at) <= 0 }

// stop is called with cond.L held.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
