package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// upgrader waits at --handover for the process that is to take this one's place, its successor.
type upgrader struct {
	clients    net.Listener
	ln         *socket // nil if no successor can come
	log        hclog.Logger
	names      []string
	sockets    []*os.File // in the order of names; they are of the listeners' open sockets
	goroutines sync.WaitGroup
	done       chan struct{} // closed when a successor serves

	mu        sync.Mutex
	successor *net.UnixConn // guarded by mu; the connection to one that asks
	closed    bool          // guarded by mu
}

// filer is a listener whose socket can be handed on.
type filer interface{ File() (*os.File, error) }

// newUpgrader begins to wait for a successor that is to listen on ln, and on admin, which can be
// nil. Without --handover it waits for none.
func newUpgrader(opts *options, ln, admin net.Listener, log hclog.Logger) (*upgrader, error) {
	s := &upgrader{log: log, done: make(chan struct{}), clients: ln}
	if opts.Handover == "" {
		return s, nil
	}
	err := s.add(handoverName("listen", opts.Listen), ln)
	if err == nil && admin != nil {
		err = s.add(handoverName("admin", opts.Admin), admin)
	}
	if err == nil {
		s.ln, err = replaceUnix(opts.Handover, 0o600)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("cannot wait for a successor at --handover %s: %w", opts.Handover,
			withoutAddr(err))
	}
	s.goroutines.Go(s.serve) // ends when a successor serves, or by close, which waits for it
	return s, nil
}

func (s *upgrader) add(name string, ln net.Listener) error {
	file, err := ln.(filer).File()
	if err == nil {
		s.names, s.sockets = append(s.names, name), append(s.sockets, file)
	}
	return err
}

// replaceUnix listens on path in place of the process that does. One that connects meanwhile finds
// either of them.
func replaceUnix(path string, mode os.FileMode) (*socket, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errors.New("the path is an existing file, and not a socket")
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	os.Remove(fresh) // of a process that had this number once
	ln, err := bindUnix(fresh, mode)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, path); err != nil {
		ln.Close()
		return nil, err
	}
	ln.path = path
	return ln, nil
}

// serve makes the offer to each process that connects, one at a time, until one of them serves.
func (s *upgrader) serve() {
	for {
		conn, err := s.ln.AcceptUnix()
		if err != nil {
			return
		}
		if !s.track(conn) {
			return
		}
		err = s.offer(conn)
		conn.Close()
		if err == nil {
			s.log.Info("another process has taken over: this one ends when running commands have " +
				"finished")
			if shared, ok := s.clients.(*socket); ok {
				shared.handed.Store(true)
			}
			close(s.done)
			return
		}
		s.log.Warn("a process asked to take over, but did not start to serve: this one continues",
			"error", withoutAddr(err))
	}
}

// track records the connection to a successor, for close to end it. It returns false if close has
// been called.
func (s *upgrader) track(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.successor = conn
	if s.closed {
		conn.Close()
	}
	return !s.closed
}

// offer hands the sockets to a successor, and returns when it serves.
func (s *upgrader) offer(conn *net.UnixConn) error {
	text, err := json.Marshal(handoverOffer{handoverVersion, os.Getpid(), s.names})
	if err != nil {
		return err
	}
	var fds []int
	for _, file := range s.sockets {
		// Fd would make the socket a blocking one, for this process too
		control, err := file.SyscallConn()
		if err == nil {
			err = control.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	conn.SetDeadline(time.Now().Add(handoverTimeout))
	if _, _, err := conn.WriteMsgUnix(text, syscall.UnixRights(fds...), nil); err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(readyTimeout))
	var answer [1]byte
	if _, err := conn.Read(answer[:]); err != nil {
		return err
	}
	if answer[0] != handoverReady {
		return fmt.Errorf("it says %q", answer[0])
	}
	return nil
}

// close ends the waiting.
func (s *upgrader) close() {
	if s.ln != nil {
		s.ln.Close()
	}
	s.mu.Lock()
	s.closed = true
	if s.successor != nil {
		s.successor.Close()
	}
	s.mu.Unlock()
	s.goroutines.Wait()
	for _, file := range s.sockets {
		file.Close()
	}
}
