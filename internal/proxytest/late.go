package proxytest

import (
	"net"
	"sync"
	"time"
)

// lateWindow is for how long at least Late remembers a delay.
const lateWindow = 10 * time.Second

// machine is how long a byte takes over loopback to another goroutine and back, which is next to
// nothing on a quiet machine.
var machine struct {
	sync.Mutex
	sent    time.Time        // of the byte that is on its way; zero for none
	longest [2]time.Duration // within this window, and the one before
	began   time.Time        // of this window
}

// Late is by how much the machine has delayed replies in the last seconds: each goes through
// several goroutines and processes, which the machine lets wait as it does those that measure. A
// bound of time that a quiet machine keeps is given that much more.
func Late() time.Duration {
	machine.Lock()
	defer machine.Unlock()
	longest := max(machine.longest[0], machine.longest[1])
	if !machine.sent.IsZero() {
		longest = max(longest, time.Since(machine.sent))
	}
	return 5 * longest
}

// WatchMachine measures what Late returns, until stop is called. Main does it.
func WatchMachine() (stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		panic(err)
	}
	far, err := ln.Accept()
	if err != nil {
		panic(err)
	}
	ln.Close()
	var goroutines sync.WaitGroup
	goroutines.Go(func() { // ends when near closes
		for b := make([]byte, 1); ; {
			if _, err := far.Read(b); err != nil {
				return
			}
			far.Write(b)
		}
	})
	goroutines.Go(func() { // ends when near closes
		for sendByte(near) {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func() {
		near.Close()
		goroutines.Wait()
		far.Close()
	}
}

// sendByte measures once. It reports false if near has closed.
func sendByte(near net.Conn) bool {
	now := time.Now()
	machine.Lock()
	machine.sent = now
	if now.Sub(machine.began) > lateWindow {
		machine.began, machine.longest = now, [2]time.Duration{0, machine.longest[0]}
	}
	machine.Unlock()
	b := []byte{0}
	_, err := near.Write(b)
	if err == nil {
		_, err = near.Read(b)
	}
	machine.Lock()
	defer machine.Unlock()
	machine.longest[0] = max(machine.longest[0], time.Since(machine.sent))
	machine.sent = time.Time{}
	return err == nil
}
