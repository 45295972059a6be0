//go:build linux

package client

import (
	"errors"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
)

// findPatience is for a Redis that is done with all faults.
const findPatience = 3 * time.Minute

// Find records the contents of the Asker's lists in a database, as Redis at addr shows them to
// user, whose password is its name; "" is the default user. No operation must be in flight.
func (a *Asker) Find(notes Noter, addr, user string, db int) error {
	c, err := Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	first := [][]string{{"SELECT", string(rune('0' + db))}}
	if user != "" {
		first = append([][]string{{"AUTH", user, user}}, first...)
	}
	for _, args := range first {
		if r, err := c.Do(findPatience, args...); err != nil || r.IsError() {
			return errors.Join(err, errors.New(r.Text))
		}
	}
	for _, name := range a.Lists(db) {
		op := notes.Begin(history.Op{Client: a.ID, Kind: history.List, Key: name})
		r, err := c.Do(findPatience, "LRANGE", name, "0", "-1")
		if err != nil || r.Type != '*' {
			return errors.Join(err, errors.New(r.String()))
		}
		values := make([]string, len(r.Elems))
		for i, e := range r.Elems {
			values[i] = e.Text
		}
		notes.End(op, func(op *history.Op) {
			op.Outcome, op.Got = history.OK, strings.Join(values, "\n")
		})
	}
	return nil
}

// Probe asks for a lock as a waiter would, and releases it. It asks again for as long as it would
// wait if Redis was not reached: a machine that hangs keeps the proxy from that, too.
func Probe(notes Noter, id int, at Target, key string, wait time.Duration) {
	op := notes.Begin(history.Op{Client: id, Kind: history.Probe, Key: key, Proxy: at.Proxy,
		Wait: true, Timeout: int64(time.Second)})
	var c *Conn
	var r Reply
	var err error
	for end := time.Now().Add(wait); ; time.Sleep(100 * time.Millisecond) {
		if c, err = Dial(at.Addr); err == nil {
			r, err = c.Do(wait+patience, "LOCK", key, "1", "WAIT", seconds(wait))
			defer c.Close()
		}
		again := c == nil || err == nil && r.IsError() && strings.HasPrefix(r.Text, "UPSTREAM") &&
			strings.Contains(r.Text, "nothing was sent")
		if !again || time.Now().After(end) {
			break
		}
	}
	notes.End(op, func(op *history.Op) { setOutcome(op, r, err, judgeLock) })
	if op.Acquired() {
		unlock := notes.Begin(history.Op{Client: id, Kind: history.Unlock, Key: key,
			Proxy: at.Proxy, Token: op.Result})
		r, err := c.Do(patience, "UNLOCK", key)
		notes.End(unlock, func(op *history.Op) { setOutcome(op, r, err, judgeFlag) })
	}
}

// Ask sends one command of a kind that histories know, and records its outcome.
func Ask(notes Noter, c *Conn, o history.Op, wait time.Duration, args ...string) history.Op {
	judge := map[history.Kind]func(Reply, *history.Op){
		history.Lock: judgeLock, history.Unlock: judgeFlag, history.Relock: judgeFlag,
		history.Fence: judgeStatus, history.Get: judgeValue,
	}[o.Kind]
	op := notes.Begin(o)
	r, err := c.Do(wait+patience, args...)
	notes.End(op, func(op *history.Op) { setOutcome(op, r, err, judge) })
	return *op
}
