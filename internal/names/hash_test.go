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
