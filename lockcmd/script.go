package lockcmd

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

// Script is one atomic step on a lock, run by the upstream. The model explores the scripts in every
// order, and must follow them: see model/README.md.
type Script struct {
	Name   string
	Source string
	SHA    string // for EVALSHA, hex
}

//go:embed scripts/*.lua
var sources embed.FS

var (
	lockScript   = newScript("lock", "fast_lock fast_share read write shared lock")
	unlockScript = newScript("unlock", "fast_unlock fast_leave read write notify shared unlock")
	relockScript = newScript("relock", "read write shared relock")
	repairScript = newScript("repair", "read repair")
	infoScript   = newScript("info", "read info")
	checkScript  = newScript("check", "read write check")
	onceScript   = newScript("once", "once read write shared lock")
	doneScript   = newScript("done", "read write notify done")
	batchScript  = newBatch("batch", lockScript, unlockScript, relockScript, infoScript)
	allScript    = newBatch("all", lockScript)
	unallScript  = newBatch("unall", unlockScript)
)

// BatchScript is the SHA of the script that runs several calls of others: see Script.Together.
var BatchScript = batchScript.SHA

// alone begins a script that runs alone: it reads what batch.lua would hand over.
var alone = readSource("stored")

// newScript puts a script together from files in scripts, with blanks between their names.
func newScript(name, files string) *Script {
	var source strings.Builder
	source.WriteString(loadOnly + alone)
	for _, file := range strings.Fields(files) {
		source.WriteString(readSource(file))
	}
	return newSource(name, source.String())
}

// newBatch puts a script together that runs calls of others: see batch.lua.
func newBatch(name string, scripts ...*Script) *Script {
	var source strings.Builder
	source.WriteString(loadOnly + "local scripts = {}\n")
	for _, s := range scripts {
		fmt.Fprintf(&source, "scripts.%s = function(KEYS, ARGV, value, record, clock)\n%s\nend\n",
			s.Name, strings.TrimPrefix(s.Source, loadOnly+alone))
	}
	source.WriteString(readSource(name))
	return newSource(name, source.String())
}

func readSource(file string) string {
	source, err := sources.ReadFile("scripts/" + file + ".lua")
	if err != nil {
		panic(err) // it is not embedded
	}
	return string(source)
}

func newSource(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{name, source, hex.EncodeToString(sum[:])}
}

// Together returns the scripts that a client's commands can need with this one, or next. They are
// loaded together: if the upstream knew only one, a pipeline would run in another order. In a
// cluster calls never go together: see BatchScript.
func (s *Script) Together(cluster bool) (others []*Script) {
	switch s {
	case lockScript:
		others = []*Script{unlockScript}
	case unlockScript:
		others = []*Script{lockScript}
	case relockScript, infoScript:
	default:
		return nil
	}
	if !cluster {
		others = append(others, batchScript)
	}
	return others
}

// LoadRequest loads s before the next request for key runs. In a cluster SCRIPT LOAD would wait for
// all nodes, and one of them can be silent. So there it is EVAL at key's node: with a single key s
// does nothing.
func (s *Script) LoadRequest(cluster bool, key string) []string {
	if cluster {
		return []string{"EVAL", s.Source, "1", key}
	}
	return []string{"SCRIPT", "LOAD", s.Source}
}

// loadOnly begins each script: see LoadRequest.
const loadOnly = "if not KEYS[2] then return end\n"

// expandShortReply is the full reply for a whole number, with which the fast paths of exclusive
// locks answer.
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
