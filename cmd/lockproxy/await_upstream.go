package main

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/upstream"
)

// upstreamPatience is how long a process that takes over waits for its upstream, less than its
// predecessor waits for it (readyTimeout). askAgain is its pause between two questions.
const (
	upstreamPatience = 20 * time.Second
	askAgain         = 500 * time.Millisecond
)

// awaitUpstream returns once the upstream would serve this process as it serves another, or else says
// why it does not: at once if the login is refused, otherwise after upstreamPatience.
func (o *options) awaitUpstream() error {
	ctx, cancel := context.WithTimeout(context.Background(), upstreamPatience)
	defer cancel()
	defer o.follow(ctx, cancel)()
	for {
		once, cancelOnce := context.WithTimeout(ctx, o.DialTimeout)
		_, err := o.upstream.Diagnose(once)
		cancelOnce()
		var noLocks *upstream.KeepsNoLocks
		if errors.As(err, &noLocks) && noLocks.Full {
			return nil
		}
		var refused *upstream.Refused
		if err == nil || errors.As(err, &refused) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// follow keeps up with an upstream that moves until ctx ends, which end brings about; what is
// returned waits for that.
func (o *options) follow(ctx context.Context, end context.CancelFunc) (stop func()) {
	if !o.upstream.Moves() {
		return func() {}
	}
	following := make(chan struct{})
	go func() { // ends with ctx; waited for by stop
		defer close(following)
		o.upstream.Follow(ctx, hclog.NewNullLogger(), func() {})
	}()
	return func() { end(); <-following }
}
