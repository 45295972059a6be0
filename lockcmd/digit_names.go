package lockcmd

import (
	"hash/maphash"
	"sync/atomic"

	"lockproxy/internal/names"
)

// digitNames are the names at which ONCE has lately found what can be the timestamp of a lock. The
// lock record is read with the value there, so that it costs no second round trip. Some that are
// not there, or are no more, make no difference but that.
type digitNames struct {
	hashes [1024]atomic.Uint64 // each name has one place
}

var digitSeed = maphash.MakeSeed()

func (d *digitNames) at(id names.Lock) (place *atomic.Uint64, hash uint64) {
	hash = maphash.Comparable(digitSeed, id)
	return &d.hashes[hash%uint64(len(d.hashes))], hash
}

func (d *digitNames) has(id names.Lock) bool {
	place, hash := d.at(id)
	return place.Load() == hash
}

// note notes whether the value with this name can be a lock.
func (d *digitNames) note(id names.Lock, suspect bool) {
	place, hash := d.at(id)
	if suspect {
		place.Store(hash)
	} else if place.Load() == hash {
		place.Store(0)
	}
}
