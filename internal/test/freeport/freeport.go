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

// Reservation is one or more ports that nobody else who uses this package gets.
type Reservation struct {
	Port int

	held []net.PacketConn
}

// Reserve reserves a port of 127.0.0.1 on which nothing listens, and the ports that are higher by
// each number in also. It fails when 500 attempts have failed.
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
		err := r.reserve(r.Port)
		for _, above := range also {
			if err == nil {
				err = r.reserve(r.Port + above)
			}
		}
		if err == nil {
			return r, nil
		}
		r.Release()
		errs = err
	}
	return nil, errors.Join(
		errors.New("no free loopback port found: end what listens on ports 10000 to 31999"), errs)
}

func (r *Reservation) reserve(port int) error {
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

// Addr returns the port as host:port.
func (r *Reservation) Addr() string { return fmt.Sprintf("127.0.0.1:%d", r.Port) }

var forGood struct {
	sync.Mutex
	held []*Reservation
}

// Addr is Reserve until this process ends. It returns the port as host:port.
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

// Release ends the reservation. It can be called more than once.
func (r *Reservation) Release() {
	for _, held := range r.held {
		held.Close()
	}
	r.held = nil
}
