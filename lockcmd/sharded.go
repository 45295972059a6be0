package lockcmd

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// shardedSubscriptions is a connection that listens to a cluster's sharded channels: a message goes to the node of its channel's slot alone, which
// is the one that has the lock, and no further. So there is a channel for each slot in which somebody waits, and when a slot moves
// to another node, the old one ends the subscription and it is asked for anew.
type shardedSubscriptions struct {
	notifications *releaseNotifications
	changed       chan struct{} // holds one: something has been added to ask

	// Guarded by wakes.mu:
	wanted  map[uint16]time.Time // slots whose channels it listens to, and when that was last wanted
	pending map[uint16]bool      // those of them that have not been subscribed to, or not at the right node
}

const (
	// subscriptionReview is how often it looks which slots nobody waits in any more, and subscribes to the others again: a subscription
	// at a master that has become a replica still brings messages, but whoever sends them isn't told that they were heard.
	subscriptionReview = 5 * time.Second
	// subscriptionIdle is how long a channel is kept that nobody needs: its next waiter may be about to come.
	subscriptionIdle = 30 * time.Second
)

func newShardedSubscriptions(w *releaseNotifications) *shardedSubscriptions {
	return &shardedSubscriptions{notifications: w, changed: make(chan struct{}, 1), wanted: map[uint16]time.Time{}, pending: map[uint16]bool{}}
}

// channel is where this proxy hears of locks in a slot.
func (sh *shardedSubscriptions) channel(slot uint16) string {
	return notifyChannel + "{" + slotTag(slot) + "}:" + sh.notifications.locks.proxy
}

// wantLocked makes sure that it listens for locks in a slot. wakes.mu is held.
func (sh *shardedSubscriptions) wantLocked(slot uint16) {
	if _, known := sh.wanted[slot]; !known {
		sh.subscribeLocked(slot)
	}
	sh.wanted[slot] = time.Now()
}

// subscribeLocked has a slot's channel subscribed to. wakes.mu is held.
func (sh *shardedSubscriptions) subscribeLocked(slot uint16) {
	sh.pending[slot] = true
	select {
	case sh.changed <- struct{}{}:
	default:
	}
}

// resubscribe has all channels subscribed to that are wanted, by a new connection.
func (sh *shardedSubscriptions) resubscribe() {
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot := range sh.wanted {
		sh.subscribeLocked(slot)
	}
}

// receive hears messages until the connection fails, or the proxy closes. It calls hears when it has subscribed.
func (sh *shardedSubscriptions) receive(client *redis.Client, as Identity, hears func()) error {
	sh.resubscribe()
	sub := client.SSubscribe(sh.notifications.ctx)
	ctx, stop := context.WithCancel(sh.notifications.ctx)
	var subscribing sync.WaitGroup
	subscribing.Go(func() { // ends with ctx, or when it fails
		sh.subscribe(ctx, sub)
		sub.Close() // a receive in progress doesn't heed its context
	})
	defer subscribing.Wait()
	defer stop()
	for {
		message, err := sub.Receive(sh.notifications.ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Message:
			sh.notifications.onMessage(as, m.Payload)
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				sh.unsubscribed(m.Channel)
			} else {
				hears()
			}
		}
	}
}

// unsubscribed has a channel subscribed to anew that is wanted still: its slot has moved.
func (sh *shardedSubscriptions) unsubscribed(channel string) {
	slot := slotOf([]byte(channel))
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	if _, ok := sh.wanted[slot]; ok {
		sh.subscribeLocked(slot)
	}
}

// subscribe keeps up with what is wanted, until ctx ends or a request fails.
func (sh *shardedSubscriptions) subscribe(ctx context.Context, sub *redis.PubSub) {
	look := time.NewTicker(subscriptionReview)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sh.changed:
		case <-look.C:
			for _, slot := range sh.review() {
				if sub.SUnsubscribe(ctx, sh.channel(slot)) != nil {
					return
				}
			}
		}
		for _, slot := range sh.takePending() { // each by itself: they are in different slots
			if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
	}
}

func (sh *shardedSubscriptions) takePending() []uint16 {
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	list := slices.Collect(maps.Keys(sh.pending))
	clear(sh.pending)
	return list
}

// review has the channels in use subscribed to again, and gives up the others, which it returns.
func (sh *shardedSubscriptions) review() (idle []uint16) {
	used := sh.notifications.locks.slotsInUse()
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot, since := range sh.wanted {
		switch {
		case used[slot]:
			sh.pending[slot] = true
		case time.Since(since) > subscriptionIdle:
			delete(sh.wanted, slot)
			idle = append(idle, slot)
		}
	}
	return idle
}

// slotsInUse are the slots in which somebody waits here.
func (l *Locks) slotsInUse() map[uint16]bool {
	l.mu.Lock()
	keys := make([]string, 0, len(l.queues))
	for id := range l.queues {
		keys = append(keys, id.Key)
	}
	l.mu.Unlock()
	used := map[uint16]bool{}
	for _, key := range keys {
		used[slotOf([]byte(key))] = true
	}
	return used
}
