package names

import (
	"encoding/hex"
	"testing"
)

func TestHash(t *testing.T) {
	// As redis.sha1hex("3:job") has it.
	hash := Lock{DB: 3, Key: "job"}.Hash()
	text := hex.EncodeToString(hash[:])
	if text != "ad13f36a8be69e1cb288d88fbd3802f7f0d55433" {
		t.Errorf("%s", text)
	}
	if got, ok := ParseHash(text); !ok || got != hash {
		t.Errorf("%x", got)
	}
	for _, wrong := range []string{"", text[1:], text + "0", "x" + text[1:], "0:job"} {
		if _, ok := ParseHash(wrong); ok {
			t.Errorf("%q is a hash", wrong)
		}
	}
}

func TestIndex(t *testing.T) {
	var x Index
	a, b := Lock{Key: "a"}, Lock{DB: 1, Key: "a"}
	find := func(l Lock, want bool) {
		t.Helper()
		if got, ok := x.Find(l.Hash()); ok != want || ok && got != l {
			t.Errorf("%v: %v, %v", l, got, ok)
		}
	}
	find(a, false)
	x.Add(a, 1)
	x.Add(a, 1)
	x.Add(b, 1)
	x.Add(a, -1)
	find(a, true)
	find(b, true)
	x.Add(a, -1)
	find(a, false)
	find(b, true)
}
