package lockcmd

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// Script is one atomic step on a lock, run by the upstream. What the scripts do is modelled, and explored in every order, in
// model/upstream.pml: that must follow them, and model/README.md says with which it was last compared.
type Script struct {
	Name   string
	Source string
	SHA    string // what EVALSHA calls it, hex
}

var (
	//go:embed scripts/read.lua
	readSource string
	//go:embed scripts/common.lua
	commonSource string
	//go:embed scripts/write.lua
	writeSource string
	//go:embed scripts/fast_lock.lua
	fastLockSource string
	//go:embed scripts/fast_unlock.lua
	fastUnlockSource string
	//go:embed scripts/lock.lua
	lockSource string
	//go:embed scripts/unlock.lua
	unlockSource string
	//go:embed scripts/relock.lua
	relockSource string
	//go:embed scripts/repair.lua
	repairSource string
	//go:embed scripts/info.lua
	infoSource string
	//go:embed scripts/check.lua
	checkSource string

	lockScript   = newScript("lock", fastLockSource, readSource, commonSource, writeSource, lockSource)
	unlockScript = newScript("unlock", fastUnlockSource, readSource, commonSource, writeSource, unlockSource)
	relockScript = newScript("relock", readSource, commonSource, writeSource, relockSource)
	repairScript = newScript("repair", readSource, commonSource, repairSource)
	infoScript   = newScript("info", readSource, commonSource, infoSource)
	checkScript  = newScript("check", readSource, commonSource, writeSource, checkSource)
)

func newScript(name string, parts ...string) *Script {
	source := ""
	for _, part := range parts {
		source += part
	}
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Together is the script that a client's commands may have run in one flight with this one, or nil.
// Whoever loads this one loads that too: if the upstream knew only one of them, what a client sends
// together would run in another order.
func (s *Script) Together() *Script {
	switch s {
	case lockScript:
		return unlockScript
	case unlockScript:
		return lockScript
	}
	return nil
}

// expandShortReply is what a script means that answers with one whole number: of the short ways, what their long ways say of the same.
func (s *Script) expandShortReply(n int64) []int64 {
	switch {
	case s == lockScript:
		return []int64{n, 0}
	case s == unlockScript && n == 1:
		return []int64{1, 0, 0}
	case s == unlockScript:
		return []int64{1, n, 0}
	}
	return []int64{n}
}
