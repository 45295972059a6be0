package script

import (
	"strings"
	"testing"
)

// Callers know another library's lock by the error of unlock.lua, which has the same text.
func TestForeignLockIsKnownByItsError(t *testing.T) {
	if !strings.Contains(UnlockScript.Source, `redis.error_reply("`+string(ErrForeignLock)+`")`) {
		t.Errorf("unlock.lua does not say %q", ErrForeignLock)
	}
}
