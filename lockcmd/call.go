package lockcmd

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"lockproxy/internal/resp"
)

// Call is one call of a script on a lock.
type Call struct {
	Script  *Script
	Keys    [2]string // the lock and its record
	More    []string  // likewise of further locks. Such a call is in no batch
	Args    [5]string
	Until   time.Time // without an answer until then, a Session fails with LateError; zero is never
	Confirm Confirmation
}

// Answer is the upstream's reply to a Step.
type Answer struct {
	resp.Value            // the script's; an error reply is one
	Confirmed  resp.Value // the confirmation's, if one was asked for and the script has not failed
	Raw        [][]byte   // the replies to Step.Do, as they came
}

// evaluator is where scripts run: a session, or a background client. Eval waits for the answer. It
// fails if there is none, or if the confirmation has none.
type evaluator interface {
	Eval(c *Call) (Answer, error)
}

// upstream is what a session that waits asks. Get waits for the value of a key, until a time.
type upstream interface {
	evaluator
	Get(key string, until time.Time) (resp.Value, error)
}

// fastArgs is what a fast path needs: ARGV[3] to ARGV[5] of fast_lock.lua, fast_share.lua,
// fast_unlock.lua and fast_leave.lua.
type fastArgs [3]string

// noFastPath leaves the fast path out.
var noFastPath fastArgs

// callMaker makes the Calls of one proxy.
type callMaker struct {
	cfg              Config
	proxy            string       // names this proxy among all, in records and channels
	guard, retention string       // ms
	holdOff          atomic.Int64 // its end, as monotonic.Now; 0 if there was none
}

func newCallMaker(cfg Config, proxy string) *callMaker {
	return &callMaker{
		cfg: cfg, proxy: proxy,
		guard: milliseconds(cfg.TakeoverGuard), retention: milliseconds(cfg.FenceRetention),
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
func (m *callMaker) unit() string {
	if m.cfg.Seconds {
		return "s"
	}
	return "ms"
}

// call makes the Call of a script on a lock and its record. args must have no blanks.
func (m *callMaker) call(
	script *Script, key string, fast fastArgs, owner string, args ...string,
) Call {
	return Call{
		Script: script,
		Keys:   [2]string{key, RecordKey([]byte(key))},
		Args:   [5]string{m.list(args), owner, fast[0], fast[1], fast[2]},
	}
}

// list is ARGV[1] of a script, as read.lua takes it.
func (m *callMaker) list(args []string) string {
	var room [256]byte
	list := room[:0]
	for _, arg := range args {
		list = append(append(list, arg...), ' ')
	}
	return string(append(list, m.guard...))
}

// ask runs a script that needs no replicas, and returns its reply.
func (m *callMaker) ask(
	on evaluator, script *Script, key string, args ...string,
) (resp.Value, error) {
	c := m.call(script, key, noFastPath, "", args...)
	a, err := on.Eval(&c)
	return a.Value, a.failure(err)
}

// failure is err, the script's error reply, or the loss of the node that was to confirm the script.
func (a *Answer) failure(err error) error {
	switch {
	case err != nil:
		return err
	case a.IsError():
		return errorOf(a.Text)
	case a.Confirmed.IsError():
		if lost, ok := errorOf(a.Confirmed.Text).(relayedError); ok {
			return lost // what the script has done is unknown
		}
	}
	return nil
}

// parseReply parses a reply to Step.Do. An error reply is an error.
func parseReply(raw []byte) (resp.Value, error) {
	v, err := resp.ParseValue(raw)
	if err == nil && v.IsError() {
		err = errorOf(v.Text)
	}
	return v, err
}

// ints returns the whole numbers in the answer to c. There must be at least n.
func (c *Call) ints(n int, a Answer, err error) (list []int64, failed error) {
	if err = a.failure(err); err != nil {
		return nil, err
	}
	if a.Type == ':' {
		list = c.Script.expandShortReply(a.Int)
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
		return nil, unexpected(c.Script, a.Value)
	}
	return list, nil
}

// unexpected is the error for a reply that the script cannot give: a command that it uses does
// something else at this upstream.
func unexpected(script *Script, v resp.Value) error {
	return fmt.Errorf("the upstream's answer to the %s script is none of the script's: "+
		"type %q, %d elements",
		script.Name, v.Type, len(v.Elems))
}
