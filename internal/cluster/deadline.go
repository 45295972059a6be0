package cluster

import (
	"sync"
	"time"
)

// SetDeadline bounds Read and Write.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline bounds Read.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil.set(t, &c.mu, c.readable)
	return nil
}

// SetWriteDeadline bounds Write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeUntil.set(t, &c.mu, c.room)
	return nil
}

// deadline wakes those who wait on a Cond when its time has come.
type deadline struct {
	passed bool
	timer  *time.Timer // nil if it isn't set, or has passed
	round  int
}

// set changes the deadline; zero is none. mu, which is cond's, is held.
func (d *deadline) set(t time.Time, mu *sync.Mutex, cond *sync.Cond) {
	d.stop()
	d.passed = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		cond.Broadcast()
		return
	}
	round := d.round
	d.timer = time.AfterFunc(left, func() { // stop stops it, or makes it do nothing
		mu.Lock()
		defer mu.Unlock()
		if d.round == round {
			d.passed = true
			cond.Broadcast()
		}
	})
}

func (d *deadline) stop() {
	d.round++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
