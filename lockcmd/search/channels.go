package search

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
)

// waitsChannel is where proxies tell each other which clients wait there. It begins
// like the channels of release notifications, so that users need no further rights.
//
// In a cluster there are three sharded ones, at as many places among the slots, each with a
// connection of its own, and messages go by all of them: so no single master is needed.
const waitsChannel = keyname.NotifyChannel + "{waits}"

// waitsSlots are the slots of a cluster's channels.
var waitsSlots = []uint16{slot.Count / 6, slot.Count / 2, slot.Count * 5 / 6}

// clusterWaits is the channel in a slot.
func clusterWaits(slot uint16) string {
	return keyname.NotifyChannel + "{" + keyname.SlotTag(slot) + "}waits"
}

// IsWaits reports whether a channel is one of these. The others end with the name of a proxy.
func IsWaits(channel string) bool {
	return channel == waitsChannel || strings.HasSuffix(channel, "}waits")
}

// Channels are those on which proxies tell each other who waits.
func (d *Deadlocks) Channels() (list []string) {
	switch {
	case d.off():
	case !d.Scripts.Cluster:
		list = append(list, waitsChannel)
	default:
		for _, slot := range waitsSlots {
			list = append(list, clusterWaits(slot))
		}
	}
	return list
}

// publish sends a message to all proxies. It can be lost: what it says is told again.
func (d *Deadlocks) publish(as names.Identity, text string) {
	for _, channel := range d.Channels() {
		d.Timers.After(0, func(ctx context.Context) { d.publishOn(ctx, as, channel, text) })
	}
}

func (d *Deadlocks) publishOn(ctx context.Context, as names.Identity, channel, text string) {
	ctx, cancel := context.WithTimeout(ctx, d.Clients.Patience())
	defer cancel()
	client := d.Clients.Near(as, channel)
	if d.Scripts.Cluster {
		err := client.SPublish(ctx, channel, text).Err()
		if !redis.HasErrorPrefix(err, "unknown command") {
			return
		}
	}
	client.Publish(ctx, channel, text)
}
