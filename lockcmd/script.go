package lockcmd

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// Script is one atomic step on a lock, run by the upstream.
type Script struct {
	Name   string
	Source string
	SHA    string // what EVALSHA calls it, hex
}

var (
	//go:embed scripts/common.lua
	commonSource string
	//go:embed scripts/lock.lua
	lockSource string
	//go:embed scripts/unlock.lua
	unlockSource string
	//go:embed scripts/settle.lua
	settleSource string

	lockScript   = newScript("lock", lockSource)
	unlockScript = newScript("unlock", unlockSource)
	settleScript = newScript("settle", settleSource)
)

func newScript(name, source string) *Script {
	source = commonSource + source
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
