package main

import (
	"cmp"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// watch follows a lock while the command runs under it.
type watch struct {
	run     *runCommand
	conn    *sessionConn
	token   int64
	lease   lease
	child   *child
	signals <-chan os.Signal
	refused bool // one of the questions under way was answered with an error
	pinged  time.Time
	stopped bool // the terminal has stopped the command, which was said
}

// untilEnd passes signals on until the command has ended. When the lock is lost it ends the command
// and reports that; then nothing of its group is left on return.
func (w *watch) untilEnd(say func(string, ...any)) (lost bool) {
	timer := time.NewTimer(0) // its first turn sets it
	defer timer.Stop()
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGCHLD)
	defer signal.Stop(changes)
	for {
		w.lookWhetherStopped(say)
		w.child.reapOrphans()
		select {
		case <-w.child.ended:
			return false
		case sig := <-w.signals:
			w.child.signal(sig.(syscall.Signal))
			if w.stopped { // it would not notice
				w.child.signal(syscall.SIGCONT)
			}
		case <-changes:
		case ev, open := <-w.conn.events:
			if why := w.told(ev, open, time.Now()); why != "" {
				w.end(why, time.Now().Add(time.Duration(w.run.KillAfter)), say)
				return true
			}
		case <-timer.C:
			now := time.Now()
			if why := w.overdue(now); why != "" {
				w.end(why, w.lease.killBy(), say)
				return true
			}
			why := w.renew(now)
			if why == "" {
				why = w.ping(now)
			}
			if why != "" {
				w.end(why, now.Add(time.Duration(w.run.KillAfter)), say)
				return true
			}
		}
		timer.Reset(time.Until(w.nextTurn()))
	}
}

// lookWhetherStopped says how a command can use the terminal, once it has been stopped for that.
func (w *watch) lookWhetherStopped(say func(string, ...any)) {
	if !w.stopped && w.child.group && w.child.stoppedByTerminal() {
		w.stopped = true
		say("%s was stopped because it uses the terminal: run it with --foreground",
			w.run.Command[0])
	}
}

// nextTurn is when something is to be done if nothing happens before.
func (w *watch) nextTurn() time.Time {
	next := w.lease.endBy(time.Duration(w.run.KillAfter))
	if w.lease.asked.IsZero() && w.lease.next.Before(next) {
		next = w.lease.next
	}
	if ping := w.pinged.Add(pingEvery); ping.Before(next) {
		next = ping
	}
	return next
}

// ping keeps balancers from cutting the connection. It returns why the lock is lost, if it is.
func (w *watch) ping(now time.Time) (lost string) {
	if now.Before(w.pinged.Add(pingEvery)) {
		return ""
	}
	w.pinged = now
	if err := w.conn.send("PING"); err != nil {
		return err.Error()
	}
	return ""
}

// overdue says why the command must end by now, if it must.
func (w *watch) overdue(now time.Time) (why string) {
	switch {
	case now.Before(w.lease.endBy(time.Duration(w.run.KillAfter))):
		return ""
	case w.lease.reachesLast():
		return "it has been held for as long as --max allows"
	}
	return "the proxy has not renewed it in time"
}

// renew asks for more time when that is due. The proxy renews the lock by itself, too; but only an
// answer proves that it does.
func (w *watch) renew(now time.Time) (lost string) {
	if !w.lease.asked.IsZero() || now.Before(w.lease.next) {
		return ""
	}
	for _, relock := range w.run.relocks(w.token) {
		if err := w.conn.send(relock...); err != nil {
			return err.Error()
		}
	}
	w.lease.asked, w.refused = now, false
	return ""
}

// told handles an event of the connection. It returns why the lock is lost, if it is.
func (w *watch) told(ev event, open bool, now time.Time) (lost string) {
	switch {
	case !open:
		return errConnectionLost.Error()
	case ev.err != nil:
		return ev.err.Error()
	case ev.isPush():
		if e := ev.value.Elems; len(e) == 3 && string(e[0].Text) == "locklost" &&
			pushedToken(e[2].Int, e[2].Text) == w.token {
			return cmp.Or(w.overdue(now), "the proxy has reported it") // it can come first
		}
		return ""
	}
	if w.conn.answered() == "PING" {
		return ""
	}
	switch {
	case ev.value.IsError():
		w.refused = true
	case ev.value.Int != 1:
		return "the token no longer holds it"
	}
	switch {
	case slices.Contains(w.conn.sent, "RELOCK"): // there are several locks
	case w.refused:
		w.lease.failed(now)
	default:
		w.lease.renewed(w.lease.asked)
	}
	return ""
}

// pushedToken is the token of a push, which can come as a number or as text.
func pushedToken(number int64, text []byte) int64 {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n
	}
	return number
}

// end ends the command: SIGTERM now, SIGKILL at killAt. It waits for the command and for all of its
// group.
func (w *watch) end(why string, killAt time.Time, say func(string, ...any)) {
	say("lost the lock %s (token %d): %s; ending %s", w.run.names(), w.token, why,
		w.run.Command[0])
	w.child.signal(syscall.SIGTERM)
	w.child.signal(syscall.SIGCONT) // a stopped one would not notice
	kill := time.NewTimer(time.Until(killAt))
	defer kill.Stop()
	select {
	case <-w.child.ended:
		w.child.groupGone(killAt)
	case <-kill.C:
	}
	w.child.signal(syscall.SIGKILL)
	<-w.child.ended
	w.child.groupGone(time.Now().Add(time.Second)) // SIGKILL leaves nothing to do but be taken away
	say("%s has ended", w.run.Command[0])
}
