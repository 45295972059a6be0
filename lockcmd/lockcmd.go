// Package lockcmd is the lock commands: what they accept, what they do upstream, what they answer.
//
// A lock is a timestamp lock. The key holds the time at which the lock expires, as programs with SETNX recipes have always
// written it, so that they and LOCK exclude one another; a companion key beside it holds the token, the owner and the times.
// Each step is one Lua script, atomic, by the upstream's clock alone; see scripts/.
//
// Guarantees, as long as the upstream keeps what it has acknowledged:
//
//   - A lock that LOCK took is its holder's until its timeout, UNLOCK or DEL of its key; nobody else is given a token before.
//   - The tokens of a key strictly increase, while its companion lives (--fence-retention) or the upstream's clock doesn't step back.
//   - UNLOCK frees only the lock of the token, or the connection, that it names.
//   - A key that holds something else is left untouched.
//
// Not guaranteed: that work stops when a lock has expired under it, and anything about an upstream that loses writes in a failover.
//
// This package sends nothing itself: it is handed a Caller, which runs scripts as the client that sent the command, on its
// database and in its order.
package lockcmd

import (
	"fmt"
	"strconv"
	"time"

	"lockproxy/internal/resp"
)

// Config is what an operator decides about locks.
type Config struct {
	MaxTimeout     time.Duration // longest timeout that LOCK accepts
	FenceRetention time.Duration // how long a lock's last token is remembered after its end
	Seconds        bool          // write timestamps in seconds, rounded up, instead of ms
}

// settling is how long a lock that was taken over rests on its companion alone, since a plain client that lost the race
// may still replace its timestamp.
const settling = 2 * time.Second

// Client is who sent a command.
type Client struct {
	Connection string // names this connection among all connections of all proxies; no blanks
	Addr       string // for people; no blanks
}

// Caller runs scripts for one client. An error reply of the upstream is a Value; an error is a failure to get a reply.
type Caller interface {
	Eval(script *Script, keys, args []string) (resp.Value, error)
}

// Takeover is a lock that was taken over from an expired one, whose timestamp needs looking after while it settles.
type Takeover struct {
	Key   string
	Token int64
}

// Reply is a lock command's answer: exactly one of an error, null and an integer.
type Reply struct {
	Err      error
	Null     bool
	Int      int64
	Takeover *Takeover // set if the caller should hand it to a Settler
}

// Spec is one lock command.
type Spec struct {
	Name    string // lower case
	MinArgs int    // with the name
	MaxArgs int
	Run     func(cfg *Config, caller Caller, client Client, args [][]byte) Reply // args without the name
}

// Specs lists the lock commands.
var Specs = []Spec{
	{Name: "lock", MinArgs: 3, MaxArgs: 3, Run: runLock},
	{Name: "unlock", MinArgs: 2, MaxArgs: 3, Run: runUnlock},
}

// CheckArity returns Redis's error for a wrong number of arguments, n with the name.
func (s *Spec) CheckArity(n int) error {
	if n < s.MinArgs || n > s.MaxArgs {
		return UsageError("ERR wrong number of arguments for '" + s.Name + "' command")
	}
	return nil
}

// ServerError is an error that the upstream answered to a script, to be passed on as it said it.
type ServerError string

func (e ServerError) Error() string { return string(e) }

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func runLock(cfg *Config, caller Caller, client Client, args [][]byte) Reply {
	timeout, err := parseTimeout(args[1], cfg.MaxTimeout)
	if err != nil {
		return Reply{Err: err}
	}
	unit := "ms"
	if cfg.Seconds {
		unit = "s"
	}
	key := string(args[0])
	v, err := eval(caller, lockScript, args[0], milliseconds(timeout), unit, milliseconds(cfg.FenceRetention),
		milliseconds(settling), client.Connection+" "+client.Addr)
	switch {
	case err != nil:
		return Reply{Err: err}
	case v.IsNull():
		return Reply{Null: true}
	case len(v.Elems) != 2 || v.Elems[0].Type != ':':
		return Reply{Err: unexpected(lockScript, v)}
	}
	reply := Reply{Int: v.Elems[0].Int}
	if v.Elems[1].Int == 1 {
		reply.Takeover = &Takeover{Key: key, Token: reply.Int}
	}
	return reply
}

func runUnlock(cfg *Config, caller Caller, client Client, args [][]byte) Reply {
	proof, err := parseProof(args[1:], client.Connection)
	if err != nil {
		return Reply{Err: err}
	}
	v, err := eval(caller, unlockScript, args[0], proof.kind, proof.value, milliseconds(cfg.FenceRetention))
	switch {
	case err != nil:
		return Reply{Err: err}
	case v.Type != ':':
		return Reply{Err: unexpected(unlockScript, v)}
	}
	return Reply{Int: v.Int}
}

// eval runs a script on the lock key and its companion. An error reply comes back as a ServerError.
func eval(caller Caller, script *Script, key []byte, args ...string) (resp.Value, error) {
	v, err := caller.Eval(script, []string{string(key), CompanionKey(key)}, args)
	if err == nil && v.IsError() {
		err = ServerError(v.Text)
	}
	return v, err
}

// unexpected is an answer that the script can't give: the upstream has replaced or altered a command that it uses.
func unexpected(script *Script, v resp.Value) error {
	return fmt.Errorf("the upstream's answer to the %s script is none of the script's: type %q, %d elements", script.Name, v.Type, len(v.Elems))
}
