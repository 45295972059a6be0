package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSocketPath is what fits into the kernel's sockaddr_un, with the byte that ends it.
const maxSocketPath = 107

// socketPath is the path in a --listen unix://path.
func (o *options) socketPath() (path string, isUnix bool) {
	return strings.CutPrefix(o.Listen, "unix://")
}

// listen opens the listener that --listen names. A Unix socket that a dead process has left behind is replaced.
func (o *options) listen() (net.Listener, error) {
	path, isUnix := o.socketPath()
	if !isUnix {
		ln, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s, choose another --listen: %w", o.Listen, withoutAddr(err))
		}
		return ln, nil
	}
	ln, err := listenUnix(path, os.FileMode(o.ListenMode))
	if errors.Is(err, syscall.EADDRINUSE) {
		ln, err = replaceSocket(path, os.FileMode(o.ListenMode))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s, choose another --listen: %w", o.Listen, withoutAddr(err))
	}
	return ln, nil
}

// replaceSocket listens on path, where a file exists, if that is the socket of a process that has ended. Of two processes
// that try at the same time, one waits for the other here and then finds it alive.
func replaceSocket(path string, mode os.FileMode) (net.Listener, error) {
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
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("that is an existing file and not a socket")
	case err == nil:
		if err := checkDead(path); err != nil {
			return nil, err
		}
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return listenUnix(path, mode)
}

func checkDead(path string) error {
	nc, err := net.Dial("unix", path)
	switch {
	case err == nil:
		nc.Close()
		return errors.New("a running process serves there")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("a socket is there, and whether it is in use can't be told: %w", withoutAddr(err))
}

// socket is a Unix listener that removes its file when it closes, unless another process has put its own there since.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

func listenUnix(path string, mode os.FileMode) (net.Listener, error) {
	mask := syscall.Umask(0o777 &^ int(mode)) // not chmod afterwards: nobody may connect in between
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(mask)
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	s := &socket{UnixListener: ln, path: path}
	if s.file, err = os.Lstat(path); err != nil {
		ln.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// isLoopback reports whether only this machine can connect.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
