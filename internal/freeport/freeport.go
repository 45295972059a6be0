// Package freeport finds loopback ports for servers that tests, the benchmark and the soak start.
//
// Asking the kernel for a port and closing it again isn't enough: until the server listens, the kernel may give the same port to any other
// listener or outgoing connection. So ports are taken from below the range that Linux, macOS and Windows use for those, and each is reserved for
// as long as the caller wants it, among all processes that use this package: the UDP port of the same number is kept bound. What isn't served
// by a caller of this package and listens in the range is avoided only if it listens already.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

const (
	first = 10000
	last  = 31999 // the kernel's own begin at 32768 or above
)

// Reservation keeps one or more ports from others that use this package.
type Reservation struct {
	Port int

	held []net.PacketConn
}

// Reserve finds a port that nobody has reserved and on which nothing listens on 127.0.0.1, and of which the same is true of the ports that lie
// above it by each of also. It fails if hundreds of ports have been tried in vain.
func Reserve(also ...int) (*Reservation, error) {
	highest := 0
	for _, above := range also {
		highest = max(highest, above)
	}
	if first+highest > last {
		return nil, fmt.Errorf("no port lies %d below another of %d to %d", highest, first, last)
	}
	var errs error
	for range 500 {
		r := &Reservation{Port: first + rand.IntN(last-highest-first+1)}
		err := r.take(r.Port)
		for _, above := range also {
			if err == nil {
				err = r.take(r.Port + above)
			}
		}
		if err == nil {
			return r, nil
		}
		r.Release()
		errs = err
	}
	return nil, errors.Join(errors.New("no free loopback port found: end what listens on ports 10000 to 31999"), errs)
}

func (r *Reservation) take(port int) error {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	held, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	r.held = append(r.held, held)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return ln.Close()
}

// Addr is the port on 127.0.0.1, as host:port.
func (r *Reservation) Addr() string { return fmt.Sprintf("127.0.0.1:%d", r.Port) }

var forGood struct {
	sync.Mutex
	held []*Reservation
}

// Addr reserves a port, and those above it by each of also, until this process ends, and is 127.0.0.1 with the port, as host:port.
func Addr(also ...int) (string, error) {
	r, err := Reserve(also...)
	if err != nil {
		return "", err
	}
	forGood.Lock()
	defer forGood.Unlock()
	forGood.held = append(forGood.held, r)
	return r.Addr(), nil
}

// Release lets others have the port. It may be called again.
func (r *Reservation) Release() {
	for _, held := range r.held {
		held.Close()
	}
	r.held = nil
}
