package lockcmd

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

// Script is one atomic step on a lock, run by the upstream. The model explores what the scripts do
// in every order. It must follow them: see model/README.md.
type Script struct {
	Name   string
	Source string
	SHA    string // what EVALSHA calls it, hex
}

//go:embed scripts/*.lua
var sources embed.FS

var (
	lockScript   = newScript("fast_lock", "read", "write", "lock")
	unlockScript = newScript("fast_unlock", "read", "write", "unlock")
	relockScript = newScript("read", "write", "relock")
	repairScript = newScript("read", "repair")
	infoScript   = newScript("read", "info")
	checkScript  = newScript("read", "write", "check")
)

// newScript puts a script together from files in scripts. The last of them names it.
func newScript(files ...string) *Script {
	var source []byte
	for _, file := range files {
		part, err := sources.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // it is not embedded
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	return &Script{files[len(files)-1], string(source), hex.EncodeToString(sum[:])}
}

// Together is the script that a client's commands may have run in one flight with this one, or nil.
// The two are loaded together: if the upstream knew only one of them, what a client sends together
// would run in another order.
func (s *Script) Together() *Script {
	switch s {
	case lockScript:
		return unlockScript
	case unlockScript:
		return lockScript
	}
	return nil
}

// expandShortReply is the reply that one whole number stands for: a fast path answers with one.
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
