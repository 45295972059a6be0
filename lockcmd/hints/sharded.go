package hints

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
)

// shardedSubscriptions is a connection that listens to a cluster's sharded channels, one for each
// slot in which clients wait or have session locks. A message goes only to the node of its
// channel's slot, which has the lock. When a slot moves to another node, the old one ends the
// subscription and it is made again.
type shardedSubscriptions struct {
	notifications *Notifications
	pending       chan uint16 // slots to subscribe to soon. If it is full, the review does
	// wanted are slots to listen for, and when a waiter last wanted them. Notifications.mu
	// guards it.
	wanted map[uint16]time.Time
}

const (
	// subscriptionReview is how often it ends subscriptions without waiters and repeats the others:
	// at a master that has become a replica they still bring messages, but SPUBLISH does not count
	// them.
	subscriptionReview = 5 * time.Second
	// subscriptionIdle is how long a subscription without waiters is kept for the next one.
	subscriptionIdle = 30 * time.Second
)

func newShardedSubscriptions(w *Notifications) *shardedSubscriptions {
	return &shardedSubscriptions{notifications: w, pending: make(chan uint16, slot.Count),
		wanted: map[uint16]time.Time{}}
}

// channel is this proxy's channel for the locks in a slot.
func (sh *shardedSubscriptions) channel(slot uint16) string {
	return keyname.SlotChannel(slot, sh.notifications.Scripts.Proxy)
}

// wantLocked subscribes for the locks in a slot. Notifications.mu is held.
func (sh *shardedSubscriptions) wantLocked(slot uint16) {
	if _, known := sh.wanted[slot]; !known {
		sh.subscribeLocked(slot)
	}
	sh.wanted[slot] = time.Now()
}

// subscribeLocked subscribes to a slot's channel soon. Notifications.mu is held.
func (sh *shardedSubscriptions) subscribeLocked(slot uint16) {
	select {
	case sh.pending <- slot:
	default:
	}
}

// unsubscribed subscribes to a wanted channel again, after its slot has moved.
func (sh *shardedSubscriptions) unsubscribed(channel string) {
	slot := keyname.SlotOf([]byte(channel))
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	if _, ok := sh.wanted[slot]; ok {
		sh.subscribeLocked(slot)
	}
}

// subscribe subscribes to what is wanted, until ctx ends or a request fails.
func (sh *shardedSubscriptions) subscribe(ctx context.Context, sub *redis.PubSub) {
	loopguard.MayWait()
	review := time.NewTicker(subscriptionReview)
	defer review.Stop()
	for {
		used, idle := sh.review()
		for _, slot := range idle {
			if sub.SUnsubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
		for _, slot := range used { // one by one, as they are in different slots
			if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
		for reviewed := true; reviewed; {
			select {
			case <-ctx.Done():
				return
			case <-review.C:
				reviewed = false
			case slot := <-sh.pending:
				if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
					return
				}
			}
		}
	}
}

// review returns the slots to subscribe to, mostly again, and those to unsubscribe from.
func (sh *shardedSubscriptions) review() (used, idle []uint16) {
	inUse := sh.notifications.slotsInUse()
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot, since := range sh.wanted {
		if inUse[slot] || time.Since(since) < subscriptionIdle {
			used = append(used, slot)
		} else {
			delete(sh.wanted, slot)
			idle = append(idle, slot)
		}
	}
	return used, idle
}

// slotsInUse are the slots in which clients wait here, or have session locks.
func (w *Notifications) slotsInUse() map[uint16]bool {
	used := map[uint16]bool{}
	for _, line := range w.queues.Lines() {
		used[keyname.SlotOf([]byte(line.Key))] = true
	}
	for _, lock := range w.sessions.All() {
		used[keyname.SlotOf([]byte(lock.Key))] = true
	}
	return used
}

// listenToWaits receives what other proxies say on one of a cluster's channels, until ctx ends or
// the user is refused.
func (w *Notifications) listenToWaits(
	ctx context.Context, as names.Identity, channel string,
) {
	loopguard.MayWait()
	for pause := minListenRetry; ; pause = min(2*pause, maxListenRetry) {
		subscribed, err := w.receiveWaits(ctx, as, channel)
		if subscribed {
			pause = minListenRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if isRefused(err) || redis.HasErrorPrefix(err, "unknown command") {
			return
		}
	}
}

// receiveWaits receives messages on a new connection until that fails.
func (w *Notifications) receiveWaits(
	ctx context.Context, as names.Identity, channel string,
) (subscribed bool, err error) {
	sub := w.Clients.Client(as).Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() }) // Receive ignores the end of its ctx
	defer stop()
	connecting, connected := context.WithTimeout(ctx, w.Clients.Patience())
	err = sub.SSubscribe(connecting, channel)
	connected()
	for err == nil {
		var message any
		message, err = sub.Receive(neverConnect)
		switch m := message.(type) {
		case *redis.Message:
			w.deadlocks.OnMessage(m.Payload)
		case *redis.Subscription:
			if subscribed = m.Kind == "ssubscribe"; !subscribed {
				return false, nil // its slot has moved
			}
		}
	}
	return subscribed, err
}
