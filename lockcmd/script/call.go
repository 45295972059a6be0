package script

import (
	"fmt"
	"strconv"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
)

// Call is one call of a script on a lock.
type Call struct {
	Script  *Script
	Keys    [2]string // the lock and its record
	More    []string  // likewise of further locks. Such a call is in no batch
	Args    [5]string
	Confirm Confirmation
}

// Answer is the upstream's reply to a Step.
type Answer struct {
	resp.Value            // the script's; an error reply is one
	Confirmed  resp.Value // the confirmation's, if one was asked for and the script has not failed
	Raw        [][]byte   // the replies to Commands, as they came
}

// FastArgs is what a fast path needs: ARGV[3] to ARGV[5] of fast_lock.lua, fast_share.lua,
// fast_unlock.lua and fast_leave.lua.
type FastArgs [3]string

// NoFastPath leaves the fast path out.
var NoFastPath FastArgs

// Config is what all scripts of one proxy depend on.
type Config struct {
	Proxy         string        // names this proxy among all, in records and channels
	Seconds       bool          // timestamps are in seconds, rounded up, instead of ms
	Cluster       bool          // the upstream is a Redis Cluster
	Retention     time.Duration // how long a lock's last token is remembered after its end
	TakeoverGuard time.Duration // how long after its expiry a lock can be taken over
	Confirm       Confirmation  // of scripts that may give out a lock
}

// Maker makes the Calls of one proxy.
type Maker struct {
	Config
	guard, retention string // ms
}

// NewMaker returns what makes a proxy's Calls.
func NewMaker(cfg Config) *Maker {
	return &Maker{
		Config: cfg, guard: milliseconds(cfg.TakeoverGuard), retention: milliseconds(cfg.Retention),
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// FromMS is a time that the upstream tells in ms. A TTL can be longer than any time.Duration: from
// a hundred years on they are all the same.
func FromMS(ms int64) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(ms, longest.Milliseconds())) * time.Millisecond
}

// unit is what timestamps are written in. Foreign clients know only one of the two.
func (m *Maker) unit() string {
	if m.Seconds {
		return "s"
	}
	return "ms"
}

// Call makes the Call of a script on a lock and its record. requests are those who can be given the
// lock, as listOf has them. words must have no blanks.
func (m *Maker) Call(
	script *Script, key string, fast FastArgs, requests string, words ...string,
) Call {
	return Call{
		Script: script,
		Keys:   [2]string{key, keyname.Record([]byte(key))},
		Args:   [5]string{m.List(words), requests, fast[0], fast[1], fast[2]},
	}
}

// List is ARGV[1] of a script, as read.lua takes it.
func (m *Maker) List(words []string) string {
	var room [256]byte
	list := room[:0]
	for _, word := range words {
		list = append(append(list, word...), ' ')
	}
	return string(append(list, m.guard...))
}

// AppendWords appends the request that runs the script: by its hash, or by its source.
func (c *Call) AppendWords(words []string, bySource bool) []string {
	how, text := "EVALSHA", c.Script.SHA
	if bySource {
		how, text = "EVAL", c.Script.Source
	}
	words = append(words, how, text, strconv.Itoa(len(c.Keys)+len(c.More)))
	return append(append(append(words, c.Keys[:]...), c.More...), c.Args[:]...)
}

// Failure is err, the script's error reply, or the loss of the node that was to confirm the script.
func (a *Answer) Failure(err error) error {
	switch {
	case err != nil:
		return err
	case a.IsError():
		return ErrorOf(a.Text)
	case a.Confirmed.IsError():
		if lost, ok := ErrorOf(a.Confirmed.Text).(RelayedError); ok {
			return lost // what the script has done is unknown
		}
	}
	return nil
}

// ParseReply parses a reply to one of the Commands. An error reply is an error.
func ParseReply(raw []byte) (resp.Value, error) {
	v, err := resp.ParseValue(raw)
	if err == nil && v.IsError() {
		err = ErrorOf(v.Text)
	}
	return v, err
}

// Ints returns the whole numbers in the answer to c. There must be at least n.
func (c *Call) Ints(n int, a Answer, err error) (list []int64, failed error) {
	if err = a.Failure(err); err != nil {
		return nil, err
	}
	if a.Type == ':' {
		list = c.Script.ExpandShortReply(a.Int)
	} else {
		list = make([]int64, 0, 3)
	}
	for _, e := range a.Elems {
		if e.Type != ':' {
			break
		}
		list = append(list, e.Int)
	}
	if len(list) < n {
		return nil, Unexpected(c.Script, a.Value)
	}
	return list, nil
}

// Unexpected is the error for a reply that the script cannot give: a command that it uses does
// something else at this upstream.
func Unexpected(script *Script, v resp.Value) error {
	return fmt.Errorf("the upstream's answer to the %s script is none of the script's: "+
		"type %q, %d elements",
		script.Name, v.Type, len(v.Elems))
}
