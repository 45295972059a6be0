package proxy

import (
	"net"
	"testing"
	"time"
)

// Shutdown has taken no listener and waits for the sessions that are there. One that came later
// would add sessions next to it.
func TestNoListenerOnceTheServerDrains(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{}
	server.advance(serverDraining, time.Now())
	if err := server.Serve(ln); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}
