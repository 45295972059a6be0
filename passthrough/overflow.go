package passthrough

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

const (
	// overflowMemory is how much of a overflow is kept in memory, bytes.
	overflowMemory = 64 << 10
	// maxSpool bounds a overflow, file included, bytes: as long as the largest reply that Redis gives by default.
	maxOverflow = 512<<20 + 1<<20
	// maxUnfiled bounds what all spools together keep in memory beyond overflowMemory each, where no file can be made, bytes.
	maxInMemory = 32 << 20
)

// Unread bounds what the clients of a proxy leave unread, all together.
type unreadTotal struct {
	limit   int64                            // of the files, bytes; 0 is none
	dropped func(client net.Addr, err error) // is told of a client that was closed for it; nil if nobody is

	inFiles, inMemory atomic.Int64 // bytes in files, and in memory for want of one
}

// reserve takes n bytes from what limit leaves of used, if there are as many.
func reserve(used *atomic.Int64, n, limit int64) bool {
	if used.Add(n) <= limit {
		return true
	}
	used.Add(-n)
	return false
}

// overflow is a queue of bytes whose memory is bounded: what is beyond overflowMemory waits in a file without a name, which goes
// with the process; where none can be made a little more waits in memory. Its zero value is empty. Not safe for concurrent use.
type overflow struct {
	all             *unreadTotal // what it counts in; nil if in nothing
	mem             []byte
	inMemory        int64    // bytes of mem that all.unfiled counts
	file            *os.File // what came behind mem; nil if nothing did
	readAt, writeAt int64    // of file
}

func (s *overflow) len() int64 { return int64(len(s.mem)) + s.writeAt - s.readAt }

// append adds a copy of b at the end. After an error, which says that there is no room for a file, the overflow is of no use.
func (s *overflow) append(b []byte) error {
	if s.file == nil && len(s.mem)+len(b) <= overflowMemory {
		s.mem = append(s.mem, b...)
		return nil
	}
	if s.len()+int64(len(b)) > maxOverflow {
		return errors.New("the client leaves too much unread")
	}
	if s.file == nil {
		file, err := os.CreateTemp("", "lockproxy-unread-")
		if err != nil {
			return s.appendMemory(b, err)
		}
		os.Remove(file.Name())
		s.file = file
	}
	// The file holds also what has been taken, until it is empty.
	if s.all != nil && s.all.limit > 0 && !reserve(&s.all.inFiles, int64(len(b)), s.all.limit) {
		return errors.New("all clients together leave too much unread")
	}
	if _, err := s.file.WriteAt(b, s.writeAt); err != nil {
		if s.all != nil && s.all.limit > 0 {
			s.all.inFiles.Add(-int64(len(b)))
		}
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	s.writeAt += int64(len(b))
	return nil
}

// keep adds b to what is in memory, since no file can be made because of err.
func (s *overflow) appendMemory(b []byte, err error) error {
	if s.all == nil || !reserve(&s.all.inMemory, int64(len(b)), maxInMemory) {
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	s.mem = append(s.mem, b...)
	s.inMemory += int64(len(b))
	return nil
}

// take removes bytes from the front, as many as it likes but some if there are any, and returns them. buf is memory it may use.
func (s *overflow) next(buf []byte) ([]byte, error) {
	if len(s.mem) > 0 {
		b := s.mem
		s.dropMemory()
		return b, nil
	}
	if s.file == nil {
		return nil, nil
	}
	n, err := s.file.ReadAt(buf[:min(int64(len(buf)), s.writeAt-s.readAt)], s.readAt)
	s.readAt += int64(n)
	if n > 0 {
		err = nil
	}
	if s.readAt == s.writeAt {
		s.clear()
	}
	return buf[:n], err
}

// clear drops all.
func (s *overflow) clear() {
	s.dropMemory()
	if s.file != nil {
		s.file.Close()
	}
	if s.all != nil && s.all.limit > 0 {
		s.all.inFiles.Add(-s.writeAt)
	}
	s.file, s.readAt, s.writeAt = nil, 0, 0
}

func (s *overflow) dropMemory() {
	if s.inMemory > 0 {
		s.all.inMemory.Add(-s.inMemory)
	}
	s.mem, s.inMemory = nil, 0
}
