package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func listenAt(path string) (net.Listener, error) {
	o := &options{servingOptions: servingOptions{Listen: "unix://" + path, ListenMode: 0o640}}
	return o.listen(nil)
}

func TestUnixSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	ln, err := listenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := listenAt(path); err == nil ||
		!strings.Contains(err.Error(), "cannot listen on unix://"+path+
			", choose another --listen: a running process already serves there") {
		t.Errorf("a socket in use: %v", err)
	}
	ln.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
	ln.Close() // as the server does
}

// A socket without a process is replaced, and only that.
func TestUnixSocketLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	ln, err := listenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()

	// Another's socket in its place is left alone at the end.
	os.Remove(path)
	other, err := listenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's socket: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, []byte("precious"), 0o600)
	if _, err := listenAt(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Error("the file was touched")
	}
}

// Of many that find a dead socket at the same time one serves, and goes on serving.
func TestUnixSocketRace(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "x.sock")
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close()
		got := make(chan net.Listener, 8)
		for range cap(got) {
			go func() { // ends by itself; received from below
				ln, _ := listenAt(path)
				got <- ln
			}()
		}
		serving := 0
		for range cap(got) {
			if ln := <-got; ln != nil {
				serving++
				defer ln.Close()
			}
		}
		if nc, err := net.Dial("unix", path); serving != 1 || err != nil {
			t.Fatalf("%d serve; %v", serving, err)
		} else {
			nc.Close()
		}
	}
}
