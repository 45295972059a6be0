package proxy

import (
	"strconv"
	"testing"

	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// No more than maxLockBatch lock commands are asked together.
func TestLockBatchIsBounded(t *testing.T) {
	unlock := lookup([]byte("unlock"))
	var b lockBatch
	for i := range maxLockBatch + 1 {
		key := strconv.Itoa(i)
		takes := b.takes(unlock.lock, [][]byte{[]byte("UNLOCK"), []byte(key)})
		if want := i < maxLockBatch; takes != want {
			t.Errorf("behind %d, one more is taken: %v, want %v", i, takes, want)
		}
		b = append(b, batchedLock{cmd: unlock, key: key,
			question: question{Step: &lockcmd.Step{}, answer: &passthrough.Answer{}}})
	}
}
