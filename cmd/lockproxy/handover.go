package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// A running process, the predecessor, hands over to the one that takes its place, its successor, by
// a Unix socket at --handover. It hands over its listening sockets themselves, so that no
// connection is refused or lost that the kernel has already made. The predecessor's part is
// upgrader.
//
//	successor -> predecessor   connects
//	predecessor -> successor   handoverOffer, with the listening sockets
//	successor -> predecessor   handoverReady, once it serves
//	predecessor                accepts no more, finishes its requests, ends
//
// If one of them ends before handoverReady, the other goes on as if nothing had happened.

// handoverVersion changes when processes of different versions could not hand over to each other.
const handoverVersion = 1

// handoverOffer describes the sockets that come with it.
type handoverOffer struct {
	Version int
	PID     int
	Names   []string // what each listens for, as the flag says it: see handoverName
}

const (
	handoverReady = 'S'
	// handoverTimeout is how long a process can take for its part, except for getting ready.
	handoverTimeout = 5 * time.Second
	// readyTimeout is how long a successor can take until it serves.
	readyTimeout = time.Minute
	// maxHandover bounds the offer, bytes; maxHandoverSockets the sockets that come with it.
	maxHandover, maxHandoverSockets = 4 << 10, 8
)

func handoverName(flag, address string) string { return flag + " " + address }

// predecessor is the process whose place this one takes. A nil one has nothing.
type predecessor struct {
	pid     int
	conn    *net.UnixConn
	sockets map[string]*os.File
}

// findPredecessor asks the process that serves at path for its listening sockets; nil if there is
// none.
func findPredecessor(path string) (*predecessor, error) {
	if path == "" {
		return nil, nil
	}
	for tries := 0; ; tries++ {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err == nil {
			var p *predecessor
			if p, err = receiveOffer(conn); err == nil {
				return p, nil
			}
			conn.Close()
		}
		if tries == 2 {
			return nil, fmt.Errorf("cannot take over from the process at --handover %s: %w", path,
				withoutAddr(err))
		}
		time.Sleep(100 * time.Millisecond) // it may have handed over to another at this moment
	}
}

func receiveOffer(conn *net.UnixConn) (*predecessor, error) {
	conn.SetDeadline(time.Now().Add(handoverTimeout))
	text, rights := make([]byte, maxHandover), make([]byte, syscall.CmsgSpace(4*maxHandoverSockets))
	n, m, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	files, err := receivedFiles(rights[:m])
	var offer handoverOffer
	if err == nil {
		err = json.Unmarshal(text[:n], &offer)
	}
	switch {
	case err != nil:
	case offer.Version != handoverVersion:
		err = fmt.Errorf("that process hands over by version %d, and this one by %d: stop that "+
			"one first",
			offer.Version, handoverVersion)
	case len(files) != len(offer.Names):
		err = fmt.Errorf("that process sent %d names for %d sockets", len(offer.Names), len(files))
	}
	p := &predecessor{pid: offer.PID, conn: conn, sockets: map[string]*os.File{}}
	for i, file := range files {
		if err != nil {
			file.Close()
		} else {
			p.sockets[offer.Names[i]] = file
		}
	}
	return p, err
}

// receivedFiles are the files in a message's rights.
func receivedFiles(rights []byte) (files []*os.File, err error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		fds, err := syscall.ParseUnixRights(&message)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

// listener is the predecessor's for a flag with this address; nil if it has none.
func (p *predecessor) listener(flag, address string) (net.Listener, error) {
	if p == nil {
		return nil, nil
	}
	name := handoverName(flag, address)
	file := p.sockets[name]
	if file == nil {
		return nil, nil
	}
	delete(p.sockets, name)
	defer file.Close() // FileListener has its own
	return net.FileListener(file)
}

// ready tells the predecessor that its successor serves.
func (p *predecessor) ready() error {
	if p == nil {
		return nil
	}
	defer p.close()
	p.conn.SetDeadline(time.Now().Add(handoverTimeout))
	_, err := p.conn.Write([]byte{handoverReady})
	return err
}

// close lets the predecessor go on, unless this process is ready.
func (p *predecessor) close() {
	if p == nil {
		return
	}
	for _, file := range p.sockets {
		file.Close()
	}
	p.conn.Close()
}
