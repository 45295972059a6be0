package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

// Script is one atomic step on a lock, run by the upstream. The model explores the scripts in every
// order, and must follow them: see internal/test/model.
type Script struct {
	Name   string
	Source string
	SHA    string // for EVALSHA, hex
}

//go:embed *.lua
var sources embed.FS

// giving are the files of scripts that know requests, waiters and holders.
const giving = "read write waiting requests shared"

var (
	LockScript   = NewScript("lock", "fast_lock fast_share "+giving+" take lock")
	UnlockScript = NewScript("unlock", "fast_unlock fast_leave "+giving+" notify sharers unlock")
	RelockScript = NewScript("relock", giving+" notify sharers relock")
	RepairScript = NewScript("repair", "read repair")
	InfoScript   = NewScript("info", "read info")
	CheckScript  = NewScript("check", "read write check")
	onceScript   = NewScript("once", "once "+giving+" take lock")
	doneScript   = NewScript("done", "read write waiting notify done")
	BatchScript  = newBatch("batch", LockScript, UnlockScript, RelockScript, InfoScript)
	allScript    = newBatch("all", NewScript("all_each", giving+" take all_each"))
	unallScript  = newBatch("unall", UnlockScript)
)

// BatchSHA is the SHA of the script that runs several calls of others: see Script.Together.
var BatchSHA = BatchScript.SHA

// alone begins a script that runs alone: it reads what batch.lua would hand over.
var alone = readSource("stored")

// NewScript puts a script together from files in scripts, with blanks between their names.
func NewScript(name, files string) *Script {
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
	source, err := sources.ReadFile(file + ".lua")
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
	case LockScript:
		others = []*Script{UnlockScript}
	case UnlockScript:
		others = []*Script{LockScript}
	case RelockScript, InfoScript:
	default:
		return nil
	}
	if !cluster {
		others = append(others, BatchScript)
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

// ExpandShortReply is the full reply for a whole number, with which the fast paths of exclusive
// locks answer.
func (s *Script) ExpandShortReply(n int64) []int64 {
	switch {
	case s == LockScript:
		return []int64{n, 0}
	case s == UnlockScript && n == 1:
		return []int64{1, 0, 0}
	case s == UnlockScript:
		return []int64{1, n, 0}
	}
	return []int64{n}
}
