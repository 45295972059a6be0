package loopguard

import "testing"

func TestMayWait(t *testing.T) {
	On()
	panics := func() (did bool) {
		defer func() { did = recover() != nil }()
		MayWait()
		return false
	}
	if panics() {
		t.Error("outside a loop")
	}
	var me Goroutine
	leave := Enter(&me)
	Enter(new(Goroutine))() // one that is called in another
	if !panics() {
		t.Error("nothing is said in a loop")
	}
	other := make(chan bool)
	go func() { other <- panics() }() // ends once it is received
	if <-other {
		t.Error("another goroutine is taken for the loop")
	}
	if leave(); panics() {
		t.Error("behind the end")
	}
}
