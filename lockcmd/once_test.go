package lockcmd

import (
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// valueSession answers a GET with a value. read is called when that is on its way.
type valueSession struct {
	slowSession
	value string
	read  func()
}

func (s *valueSession) Get(string, time.Time) (resp.Value, error) {
	s.read()
	return resp.Value{Type: '$', Text: []byte(s.value)}, nil
}

// A value is deleted after it has been read for those who wait. Who asks after that, and joins them
// before they are answered, is not given it.
func TestDeletedValueIsNotShared(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	join := func() *queue.Waiter {
		r := script.Request{Key: "k:once:x", Value: "k"}
		w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
		return w
	}
	first, second := join(), join()
	var late *queue.Waiter
	s := &valueSession{value: "deleted", read: func() { late = join() }}
	there, err := l.readForAll(session{Client{Holder: &s.holder}, s}, first)
	if !there || err != nil || !first.State().Ended || !second.State().Ended {
		t.Fatalf("%t, %v: those who waited are not served", there, err)
	}
	if at := late.State(); !at.Waits || !at.PollNow {
		t.Error("who came later has the value, or does not ask at once")
	}
}
