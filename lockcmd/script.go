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
	//go:embed scripts/write.lua
	writeSource string
	//go:embed scripts/lock.lua
	lockSource string
	//go:embed scripts/unlock.lua
	unlockSource string
	//go:embed scripts/relock.lua
	relockSource string
	//go:embed scripts/settle.lua
	settleSource string
	//go:embed scripts/info.lua
	infoSource string
	//go:embed scripts/check.lua
	checkSource string

	lockScript   = newScript("lock", commonSource, writeSource, lockSource)
	unlockScript = newScript("unlock", commonSource, writeSource, unlockSource)
	relockScript = newScript("relock", commonSource, writeSource, relockSource)
	settleScript = newScript("settle", commonSource, settleSource)
	infoScript   = newScript("info", commonSource, infoSource)
	checkScript  = newScript("check", commonSource, checkSource)
)

func newScript(name string, parts ...string) *Script {
	source := ""
	for _, part := range parts {
		source += part
	}
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
