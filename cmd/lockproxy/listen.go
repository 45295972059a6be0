package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
)

// maxSocketPath is what fits into the kernel's sockaddr_un, without the byte that ends it.
const maxSocketPath = 107

// socketPath is the path in a --listen unix://path.
func (o *options) socketPath() (path string, isUnix bool) {
	return strings.CutPrefix(o.Listen, "unix://")
}

// fromSystemd is the value of --listen for a socket that systemd has opened.
const fromSystemd = "systemd"

// listen opens the listener that --listen names, or takes it over from the predecessor that has it.
// A Unix socket that a dead process has left behind is replaced.
func (o *options) listen(old *predecessor) (net.Listener, error) {
	path, isUnix := o.socketPath()
	ln, err := old.listener("listen", o.Listen)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s as it was handed over: %w", o.Listen, err)
	case ln != nil && isUnix:
		adopted, err := adoptUnix(ln, path)
		if err == nil {
			adopted.handed.Store(true) // until this process serves, the file is the other's
		}
		return adopted, err
	case ln != nil:
		return ln, nil
	case old != nil:
		return nil, fmt.Errorf("the process at --handover does not listen on %s: give this one "+
			"the same --listen, or another --handover", o.Listen)
	case o.Listen == fromSystemd:
		return systemdListener()
	}
	return o.open(path, isUnix)
}

// systemdListener is the socket of the .socket unit that this process is started for.
func systemdListener() (net.Listener, error) {
	listeners, err := activation.Listeners()
	if err == nil && (len(listeners) != 1 || listeners[0] == nil) {
		err = fmt.Errorf("want one stream socket, got %d: start it by a .socket unit with one "+
			"ListenStream=", len(listeners))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on systemd's socket: %w", err)
	}
	return listeners[0], nil
}

func (o *options) open(path string, isUnix bool) (net.Listener, error) {
	var ln net.Listener
	var err error
	if isUnix {
		ln, err = listenUnix(path, os.FileMode(o.ListenMode))
	} else {
		ln, err = net.Listen("tcp", o.Listen)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s, choose another --listen: %w", o.Listen,
			withoutAddr(err))
	}
	return ln, nil
}

// listenUnix listens on path, also if a socket is there whose process has ended. The directory is
// locked meanwhile: of two processes that start at the same time, one would otherwise take the
// other's new socket for a dead one and remove it.
func listenUnix(path string, mode os.FileMode) (*socket, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() // unlocks
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bindUnix(path, mode)
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("the path is an existing file, and not a socket")
	}
	if err := checkDead(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return bindUnix(path, mode)
}

func checkDead(path string) error {
	nc, err := net.Dial("unix", path)
	switch {
	case err == nil:
		nc.Close()
		return errors.New("a running process already serves there")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("the path is a socket, and the proxy cannot tell whether another process "+
		"uses it: %w",
		withoutAddr(err))
}

// umask guards the process's file creation mask while it is changed.
var umask sync.Mutex

// socket is a Unix listener that removes its file when it closes, unless another process has put
// its own there since.
type socket struct {
	*net.UnixListener
	path   string
	file   os.FileInfo
	handed atomic.Bool // another process listens on it too
}

func bindUnix(path string, mode os.FileMode) (*socket, error) {
	umask.Lock()
	// not chmod afterwards: no client may connect in between
	mask := syscall.Umask(0o777 &^ int(mode))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(mask)
	umask.Unlock()
	if err != nil {
		return nil, err
	}
	return adoptUnix(ln, path)
}

// adoptUnix takes care of a listener's file.
func adoptUnix(ln net.Listener, path string) (s *socket, err error) {
	unix, ok := ln.(*net.UnixListener)
	if !ok {
		ln.Close()
		return nil, fmt.Errorf("the listener for %s is not a Unix socket", path)
	}
	unix.SetUnlinkOnClose(false)
	s = &socket{UnixListener: unix, path: path}
	if s.file, err = os.Lstat(path); err != nil {
		ln.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) && !s.handed.Load() {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// isLoopback reports whether only this machine can connect.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
