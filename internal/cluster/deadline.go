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
	cond   *sync.Cond
	passed bool
	timer  *time.Timer // nil without a deadline
}

// set changes the deadline; the zero time is none.
func (d *deadline) set(t time.Time) error {
	d.cond.L.Lock()
	defer d.cond.L.Unlock()
	d.stop()
	d.passed = !t.IsZero() && !t.After(time.Now())
	if d.passed {
		d.cond.Broadcast()
	} else if !t.IsZero() {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() { // stop makes it do nothing
			d.cond.L.Lock()
			defer d.cond.L.Unlock()
			if d.timer == timer {
				d.passed = true
				d.cond.Broadcast()
			}
		})
		d.timer = timer
	}
	return nil
}

// stop is called with cond.L held.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
