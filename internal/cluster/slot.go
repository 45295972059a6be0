package cluster

import "lockproxy/internal/slot"

// Slots is how many slots a Redis Cluster has.
const Slots = slot.Count

// Slot is the slot of a key.
func Slot(key []byte) int { return slot.Of(key) }
