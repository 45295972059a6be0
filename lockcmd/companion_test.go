package lockcmd

import (
	"strings"
	"testing"
)

func slot(key string) uint16 {
	if hasHashTag([]byte(key)) {
		_, rest, _ := strings.Cut(key, "{")
		key, _, _ = strings.Cut(rest, "}")
	}
	return crc16(0, []byte(key)) % slots
}

func TestCompanionSharesSlot(t *testing.T) {
	// The specification's own check value, so that slot and CompanionKey can't be wrong together.
	if got := crc16(0, []byte("123456789")); got != 0x31C3 {
		t.Fatalf("crc16 = %#x, want 0x31C3", got)
	}
	keys := []string{"", "job", "{a}b", "a{b}c", "a{b", "a}b", "a{}b", "a{}{b}", "}{", "{", "}", "{}", "{{a}}", "a\x00b", "\xff\xfe", "a b\r\n",
		strings.Repeat("x", 70000)}
	for i := range 5000 {
		keys = append(keys, "lock:"+strings.Repeat("k", i%7)+string(rune(i)))
	}
	for _, key := range keys {
		companion := CompanionKey([]byte(key))
		if !strings.HasPrefix(companion, key) || companion == key {
			t.Errorf("companion %q does not begin with %q", companion, key)
		}
		if slot(companion) != slot(key) {
			t.Errorf("%.40q is in slot %d, its companion in %d", key, slot(key), slot(companion))
		}
	}
}

func TestEverySlotHasASuffix(t *testing.T) {
	for i, suffix := range slotSuffixes() {
		if suffix == [3]byte{} {
			t.Fatalf("no suffix for slot difference %d", i)
		}
	}
}
