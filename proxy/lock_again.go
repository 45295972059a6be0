package proxy

// Lock commands that were asked together, and whose scripts have not run.

import (
	"slices"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// notRun reports whether a call must be asked again: others of its batch took too long, or Redis
// has refused all of them, or doesn't have the script.
func (l *locker) notRun(a *passthrough.Answer) bool {
	if a.Good() {
		return false
	}
	v, err := a.Value()
	return err == nil && (leftOut(v) || denied(a, v) ||
		isNoScript(v, err) && !l.server.cfg.Locks.Cluster)
}

// askAgain asks together, once more, those commands of a list that have been answered but have not
// run: alone they would cost a round trip each. Those that don't run then either go alone, the
// first at once. A cluster's nodes would each have to be sent a script that is missing. end must be
// called when the first has been answered: others wait for the scripts that are loaded.
func (l *locker) askAgain(list []batchedLock) (end func()) {
	end = func() {}
	mine := false
	if v, err := list[0].answer.Value(); isNoScript(v, err) {
		if loaded, leads := l.server.scripts.begin(false, "", list[0].began); leads {
			end, mine = loaded, true
		}
	}
	if l.retryRoute(passthrough.Shared) != nil {
		return end // finishLock tries again, and knows what to say
	}
	var missing []*script.Script
	for i := range list {
		one := &list[i]
		if one.answer == nil || !one.answer.Arrived() || !l.notRun(one.answer) {
			continue
		}
		v, err := one.answer.Value()
		script := one.Call.Script
		if mine && isNoScript(v, err) && !slices.Contains(missing, script) {
			for _, s := range append(script.Together(false), script) {
				missing = append(missing, s)
				l.load(s, one.Keys[0])
			}
		}
		one.answer = l.pipe.Ask(one.call(), nil)
	}
	return end
}

// denied reports whether a batch was refused for want of a right, before any of its calls has run.
func denied(a *passthrough.Answer, v resp.Value) bool {
	return a.Refused() && strings.HasPrefix(serverErrorText("", string(v.Text)), "NOPERM")
}

// leftOut reports whether a script was not run because others of its batch took too long.
func leftOut(v resp.Value) bool { return v.Type == '+' && string(v.Text) == "LATER" }
