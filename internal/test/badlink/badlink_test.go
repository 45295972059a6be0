package badlink

import (
	"io"
	"net"
	"testing"
	"time"
)

// Pieces arrive in order, and all arrive although the sender has closed.
func TestAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r, err := New(ln.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Away(20 * time.Millisecond)
	from, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends by itself; the test reads to its end
		for i := range 10 {
			from.Write([]byte{byte('0' + i)})
		}
		from.Close()
	}()
	to, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	got, err := io.ReadAll(to)
	if err != nil || string(got) != "0123456789" {
		t.Errorf("%q, %v", got, err)
	}
}
