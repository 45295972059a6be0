//go:build linux

package client

import (
	"context"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Owner is a client with two connections and one name. It takes a lock by one of them and waits for
// another lock by the other, in any order, so that owners wait for each other.
type Owner struct {
	Name  string
	Keys  []string
	Conns [2]*Locker // of one ID; each has a connection
}

const (
	ownerLease = 6 * time.Second
	ownerWait  = 5 * time.Second
)

// Run competes until ctx ends.
func (o *Owner) Run(ctx context.Context) {
	defer hangUp(o.Conns[:])
	for ctx.Err() == nil {
		for _, c := range o.Conns {
			if c.conn == nil && !c.connect() {
				pause(ctx, 20*time.Millisecond+c.upTo(80*time.Millisecond))
			}
		}
		if o.Conns[0].conn != nil && o.Conns[1].conn != nil {
			o.compete(ctx)
		}
		pause(ctx, o.Conns[0].upTo(o.Conns[0].Think))
	}
}

// compete takes two locks, one after the other, and releases them.
func (o *Owner) compete(ctx context.Context) {
	random := o.Conns[0].Random
	first := random.IntN(len(o.Keys))
	second := (first + 1 + random.IntN(len(o.Keys)-1)) % len(o.Keys)
	a := o.take(o.Conns[0], o.Keys[first])
	if !a.Acquired() {
		return
	}
	pause(ctx, o.Conns[0].upTo(20*time.Millisecond))
	if random.IntN(4) == 0 { // by its other connection, too
		o.take(o.Conns[1], o.Keys[first])
	}
	b := o.take(o.Conns[1], o.Keys[second])
	by := o.Conns[random.IntN(2)]
	for _, lock := range []history.Op{b, a} {
		if lock.Acquired() && by.conn != nil {
			by.do(history.Op{Kind: history.Unlock, Key: lock.Key, Token: lock.Result}, 0, judgeFlag,
				"UNLOCK", lock.Key, strconv.FormatInt(lock.Result, 10))
		}
	}
}

func (o *Owner) take(by *Locker, key string) history.Op {
	if by.conn == nil {
		return history.Op{}
	}
	op := history.Op{Kind: history.Lock, Key: key, Wait: true, Owner: o.Name,
		Timeout: ownerLease.Nanoseconds()}
	got, _ := by.do(op, ownerWait, judgeLock, "LOCK", key, seconds(ownerLease), "OWNER", o.Name,
		"WAIT", seconds(ownerWait))
	if got.Outcome == history.Refused && !strings.HasPrefix(got.Got, "DEADLOCK") {
		by.hangUp()
	}
	return got
}
