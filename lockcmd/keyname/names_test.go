//go:build !race

package keyname

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/slot"
	"lockproxy/internal/test/testredis"
)

// specified follows the words of the cluster specification, apart from how SlotOf does it.
func specified(key string) uint16 {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' {
				if j > i+1 {
					key = key[i+1 : j]
				}
				break
			}
		}
		break
	}
	return slot.CRC16(0, []byte(key)) % slot.Count
}

// oddKeys are names with confusing braces, and some of all other kinds.
var oddKeys = []string{
	"", "job", "{a}b", "a{b}c", "a{b", "a}b", "a{}b", "a{}{b}", "}{", "{", "}", "{}", "{}a",
	"a{}", "{{a}}", "{a", "b{a}", "{a}{b}", "}{a}", "{{}}", "{}{a}", "a\x00b", "\x00", "\xff\xfe",
	"{\x00}", "{\r\n}x", "a b\r\n", " ", "{ }", "job:lockproxy:tag", "job:lockproxy:",
	"{job}:lockproxy:tag", strings.Repeat("x", 70000),
}

func checkRecordKey(t interface {
	Errorf(format string, args ...any)
}, key string) {
	record := Record([]byte(key))
	if !strings.HasPrefix(record, key) || record == key {
		t.Errorf("record %q does not begin with %q", record, key)
	}
	if specified(record) != specified(key) || SlotOf([]byte(key)) != specified(key) {
		t.Errorf("%.40q is in slot %d (slotOf: %d), its record in %d",
			key, specified(key), SlotOf([]byte(key)), specified(record))
	}
	if lock, ok := LockOf(record); !ok || lock != key {
		t.Errorf("the record of %.40q is taken for that of %.40q, %v", key, lock, ok)
	}
	claim := Claim([]byte(key))
	if made, ok := MadeBy(claim); !ok || made != key || specified(claim) != specified(key) {
		t.Errorf("the claim %.40q of %.40q makes %.40q, %v", claim, key, made, ok)
	}
	if made, ok := MadeBy(record); ok {
		t.Errorf("the record %.40q makes %.40q", record, made)
	}
	channel := SlotChannel(SlotOf([]byte(key)), "0123456789abcdef")
	if specified(channel) != specified(key) {
		t.Errorf("%.40q is in slot %d, the channel for it in %d",
			key, specified(key), specified(channel))
	}
}

func TestRecordSharesSlot(t *testing.T) {
	// The specification's check value: so specified and RecordKey can't both be wrong.
	if got := slot.CRC16(0, []byte("123456789")); got != 0x31C3 {
		t.Fatalf("crc16 = %#x, want 0x31C3", got)
	}
	for _, key := range oddKeys {
		checkRecordKey(t, key)
	}
}

// Any bytes, and many braces.
func TestRecordSharesSlotProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string {
			return string(b)
		})
		words := rapid.SampledFrom([]string{"{", "}", "{}", "}{", recordInfix, recordTag})
		part := rapid.OneOf(words, bytes)
		checkRecordKey(t, strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "key"), ""))
	})
}

func TestEverySlotHasASuffix(t *testing.T) {
	for i, suffix := range slotSuffixes() {
		if suffix == [3]byte{} {
			t.Fatalf("no suffix for slot difference %d", i)
		}
	}
}

// Redis itself computes the same slots.
func TestRecordSharesSlotByRedis(t *testing.T) {
	node := testredis.StartCluster(t, 1, 0).Nodes[0]
	for _, key := range oddKeys {
		lock := node.Ask("CLUSTER", "KEYSLOT", key)
		record := node.Ask("CLUSTER", "KEYSLOT", Record([]byte(key)))
		if want := ":" + strconv.Itoa(int(SlotOf([]byte(key)))); lock != want || record != want {
			t.Errorf("%.40q: slot %s, its record %s, slotOf %s", key, lock, record, want)
		}
	}
}
