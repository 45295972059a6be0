//go:build linux

package soak

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"lockproxy/internal/test/faults/process"
)

// startReplica gives redis a replica, which reaches it by a relay.
func (b *Bench) startReplica(ctx context.Context) (err error) {
	host, port, _ := net.SplitHostPort(b.way.Addr())
	if b.replica, err = process.StartRedis(ctx, b.dir, process.None, false, "--replicaof", host,
		port); err != nil {
		return err
	}
	return b.awaitReplica(ctx)
}

func (b *Bench) endReplica() {
	if b.replica != nil {
		b.replica.Kill()
		os.RemoveAll(b.replica.Dir())
		b.replica = nil
	}
}

// awaitReplica returns when the replica, if there is one, has all that redis has.
func (b *Bench) awaitReplica(ctx context.Context) error {
	for deadline := time.Now().Add(patience); b.replica != nil && !b.hasAll(); sleep(ctx,
		20*time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("the replica does not follow:\n%s", b.replica.Log())
		}
	}
	return nil
}

// hasAll reports whether the replica has confirmed, within a second, what redis had before.
func (b *Bench) hasAll() bool {
	c, err := b.dial()
	if err != nil {
		return false
	}
	defer c.Close()
	r, err := c.Do(patience, "WAIT", "1", "1000")
	return err == nil && r.Int > 0
}

// confirm has a proxy give out locks that a replica has confirmed, or all locks.
func (b *Bench) confirm(ctx context.Context, i int, confirmed bool) error {
	if b.confirmed[i] == confirmed {
		return nil
	}
	b.confirmed[i] = confirmed
	p := b.proxy[i]
	p.Also()
	if confirmed {
		p.Also("--min-replicas", "1")
	}
	p.Stop(patience)
	return p.Start(ctx)
}

// lagReplica stops the replica, or one direction of its link.
func (b *Bench) lagReplica(ctx context.Context, f *Fault) {
	if f.Target == 0 {
		f.Detail = "stopped"
		b.replica.Pause()
		sleep(ctx, f.For)
		b.replica.Resume()
	} else {
		oneWay(ctx, b.way, f)
	}
	b.catchUp()
}

// catchUp returns when redis's replica has followed it.
func (b *Bench) catchUp() {
	if err := b.awaitReplica(context.Background()); err != nil {
		b.alarm("%v", err)
	}
}
