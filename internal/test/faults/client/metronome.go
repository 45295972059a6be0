//go:build linux

package client

import (
	"context"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Metronome pings a proxy, one ping after the other, with a pause behind each: how many are
// answered says how much the machine gets done.
type Metronome struct {
	ID       int
	Target   Target
	Notes    Noter
	Distance time.Duration // how far away redis is, there and back
}

const beatPause = 50 * time.Millisecond

// Run pings until ctx ends.
func (m *Metronome) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if c, err := Dial(m.Target.Addr); err == nil {
			for m.beat(c) && ctx.Err() == nil {
				pause(ctx, beatPause)
			}
			c.Close()
		}
		pause(ctx, beatPause)
	}
}

func (m *Metronome) beat(c *Conn) bool {
	begun := history.Now()
	r, err := c.Do(patience, "PING")
	if err != nil || r.IsError() {
		return false
	}
	m.Notes.Add(history.Op{Client: m.ID, Kind: history.Beat, Proxy: m.Target.Proxy, Call: begun,
		Return: history.Now(), Outcome: history.OK,
		Timeout: (beatPause + m.Distance).Nanoseconds()})
	return true
}
