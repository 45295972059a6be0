package script

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The modes of take.lua.
const (
	ModeTry   = "try"
	ModeFirst = "first"
	ModeCheck = "check"

	// ModeAgain is ModeFirst without the fast path, which is useless when only time has passed.
	ModeAgain = "again"
)

// TakeoverGrace is how long after a takeover the loser may still write.
const TakeoverGrace = 2 * time.Second

// Lock makes a call of lock.lua, or of once.lua for the claim to a value. how is how this proxy
// waits. behind is since when a LOCKALL waits here, which goes first; 0 is none. others are waiters
// behind the request that can share the lock with it, and the one behind these, which is exclusive.
// ends is until when it takes anything, by the upstream's clock, ms; 0 is for ever.
func (m *Maker) Lock(
	r Request, mode string, how How, behind int64, others []Request, ends int64,
) Call {
	fast := m.fastLock(r, mode)
	if len(others) > 0 || mode == ModeAgain {
		fast = NoFastPath
	}
	if mode == ModeAgain {
		mode = ModeFirst
	}
	script := LockScript
	if r.Once {
		script, fast = onceScript, FastArgs{"", "", r.earlyText()}
	}
	all := listOf(append([]Request{r}, others...)...)
	c := m.Call(script, r.Key, fast, all, m.takeWords(mode, how, behind, ends)...)
	if r.Once {
		c.More = []string{r.Value}
	}
	c.Confirm = m.Confirm
	return c
}

// takeWords are the words of take.lua.
func (m *Maker) takeWords(mode string, how How, told, ends int64) []string {
	until := "9999999999999"
	if ends > 0 {
		until = fmt.Sprintf("%013d", ends)
	}
	return []string{m.unit(), m.retention, milliseconds(TakeoverGrace), m.Proxy, mode, string(how),
		strconv.FormatInt(told, 10), until}
}

// Attempt is the result of one call of lock.lua.
type Attempt struct {
	Token     int64         // 0 if the lock is held
	Foreign   bool          // held by, or taken over from, a foreign client
	ForeignAt []int         // which of the locks that were asked for are
	TakenOver bool          // a grace period runs
	Made      bool          // ONCE: there is a value, and the claim was not taken
	Renewed   bool          // its owner had the lock already, and may know the token
	Before    bool          // this connection was given it before
	Taken     bool          // an exclusive lock was taken, and not only found
	Given     int           // how many waiters were given a shared lock, with the first
	Exclusive bool          // the lock is exclusive, whatever was asked for now
	Remaining time.Duration // of a held lock

	HeldShared bool  // others share it
	Now        int64 // of a held lock: the upstream's time, ms
	AskedAt    time.Time
	Waited     time.Duration // in the queue of waiters
}

// Attempt reads the answer to a call of lock.lua, once.lua or all.lua.
func (c *Call) Attempt(answer Answer, err error) (a Attempt, failed error) {
	found, err := c.Ints(2, answer, err)
	if err != nil {
		return a, err
	}
	if found[0] < 0 {
		a.Made = true
		return a, nil
	}
	if c.Script == allScript {
		if len(found) < 3 {
			return a, Unexpected(c.Script, answer.Value)
		}
		if found[0] == 0 { // in the order of lock.lua
			found = slices.Concat([]int64{0, 0, found[1], 0}, found[2:])
		}
	}
	a.Token, a.Foreign = found[0], found[1] == 1 && c.Script != allScript
	if a.Foreign {
		a.ForeignAt = []int{0}
	}
	third, shared := int64(0), len(found) > 3
	if len(found) > 2 {
		third = found[2]
	}
	if a.Token == 0 {
		a.Remaining = FromMS(third)
		if len(found) > 4 {
			a.HeldShared, a.Now = found[3] == 1, found[4]
			for _, i := range found[5:] {
				if i >= 1 && i <= int64(1+len(c.More)/2) { // otherwise none of the script's answers
					a.ForeignAt = append(a.ForeignAt, int(i-1))
				}
			}
		}
		return a, nil
	}
	a.TakenOver, a.Renewed, a.Before = found[1] > 0, third > 0, third == 2
	a.Taken, a.Given, a.Exclusive = len(found) == 2, 1, !shared
	if shared {
		a.Given = int(found[3])
	}
	return a, nil
}

// fastLock is LOCK's fast path. It knows only ms, no takeover guard, and no ModeCheck.
func (m *Maker) fastLock(r Request, mode string) FastArgs {
	if m.Seconds || m.TakeoverGuard > 0 || mode == ModeCheck {
		return NoFastPath
	}
	if r.Shared {
		return FastArgs{"", milliseconds(r.Timeout) + " " + r.limitText() + " " + m.retention +
			" =" + r.Connection + "/" + r.Number + " " + r.sharerFields()}
	}
	lives := r.Timeout + m.Retention
	return FastArgs{milliseconds(r.Timeout), milliseconds(lives), r.holderFields()}
}
