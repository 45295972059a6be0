//go:build linux

package soak

import (
	"context"
	"strings"
	"time"

	"lockproxy/internal/test/badlink"
)

func (b *Bench) cutUp(ctx context.Context, f *Fault) {
	r := b.up[f.Target]
	if f.Amount%2 == 0 {
		f.Detail = "one connection after the other"
		for end := time.Now().Add(f.For); time.Now().Before(end) &&
			ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
			r.ResetOne()
		}
		return
	}
	r.Set(badlink.State{Refuse: true})
	r.Reset()
	sleep(ctx, f.For)
	r.Set(badlink.State{})
}

func (b *Bench) oneWayUp(ctx context.Context, f *Fault) { oneWay(ctx, b.up[f.Target], f) }

func (b *Bench) oneWayDown(ctx context.Context, f *Fault) { oneWay(ctx, b.down[f.Target], f) }

// oneWay stops one direction; then the held bytes arrive late, or are lost.
func oneWay(ctx context.Context, r *badlink.Link, f *Fault) {
	link := badlink.State{HoldUp: f.Amount&1 == 0, HoldDn: f.Amount&1 == 1}
	f.Detail = map[bool]string{true: "towards redis", false: "towards the client"}[link.HoldUp]
	r.Set(link)
	sleep(ctx, f.For)
	if f.Amount&2 == 0 {
		f.Detail += ", what was held is lost"
		r.Hangup()
	}
	r.Set(badlink.State{})
}

func (b *Bench) slowUp(ctx context.Context, f *Fault) { slow(ctx, b.up[f.Target], f) }

func (b *Bench) slowDown(ctx context.Context, f *Fault) { slow(ctx, b.down[f.Target], f) }

func slow(ctx context.Context, r *badlink.Link, f *Fault) {
	switch f.Amount % 3 {
	case 0:
		f.Detail = "50 ms"
		r.Set(badlink.State{Latency: 50 * time.Millisecond})
	case 1:
		f.Detail = "20 kB/s"
		r.Set(badlink.State{Rate: 20_000})
	case 2:
		f.Detail = "5 bytes at a time"
		r.Set(badlink.State{Piece: 5, Latency: 100 * time.Microsecond})
	}
	sleep(ctx, f.For)
	r.Set(badlink.State{})
}

func (b *Bench) closeDown(ctx context.Context, f *Fault) {
	b.down[f.Target].Hangup()
	sleep(ctx, 200*time.Millisecond)
}

func (b *Bench) resetDown(ctx context.Context, f *Fault) {
	b.down[f.Target].Reset()
	sleep(ctx, 200*time.Millisecond)
}

func (b *Bench) corruptLinks(ctx context.Context, f *Fault) {
	b.up[spare].Set(badlink.State{Corrupt: 1e-4})
	b.down[spare].Set(badlink.State{Corrupt: 1e-3})
	sleep(ctx, f.For)
	b.up[spare].Set(badlink.State{})
	b.down[spare].Set(badlink.State{})
	b.up[spare].Reset()
	b.down[spare].Reset()
	for end := time.Now().Add(patience); time.Now().Before(end); sleep(ctx, 20*time.Millisecond) {
		// a script that a changed bit keeps from ending
		_, err := b.command(patience, "SCRIPT", "KILL")
		if err != nil && strings.Contains(err.Error(), "NOTBUSY") {
			break
		}
	}
}
