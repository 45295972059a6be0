package script

import (
	"strings"
	"testing"
)

// What unlock.lua says of another library's lock is what its callers compare with.
func TestForeignLockIsKnownByItsError(t *testing.T) {
	if !strings.Contains(UnlockScript.Source, `redis.error_reply("`+string(ErrForeignLock)+`")`) {
		t.Errorf("unlock.lua does not say %q", ErrForeignLock)
	}
}
