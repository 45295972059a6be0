package passthrough

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

const (
	// overflowMemory is how much of an overflow is in memory, bytes.
	overflowMemory = 64 << 10
	// maxOverflow bounds an overflow, file included, bytes: more than the largest reply of Redis by
	// default.
	maxOverflow = 512<<20 + 1<<20
	// maxInMemory bounds what all overflows together keep in memory where no file can be made,
	// beyond overflowMemory each, bytes.
	maxInMemory = 32 << 20
)

// unreadTotal bounds what all clients together leave unread.
type unreadTotal struct {
	limit int64 // of the files, bytes; 0 for none
	// is called for each client that is closed for it; can be nil
	dropped func(client net.Addr, err error)

	inFiles, inMemory atomic.Int64 // bytes in files, and in memory where no file can be made
}

// reserve adds n to used, unless that exceeds limit.
func reserve(used *atomic.Int64, n, limit int64) bool {
	if used.Add(n) <= limit {
		return true
	}
	used.Add(-n)
	return false
}

// overflow is a queue of bytes. What exceeds overflowMemory is in an unnamed file, which ends with
// the process, or in memory if no file can be made, up to a bound. Its zero value is empty. Not
// safe for concurrent use.
type overflow struct {
	all             *unreadTotal // where its bytes count; nil for nowhere
	mem             []byte
	inMemory        int64    // bytes of mem that all.unfiled counts
	file            *os.File // what follows mem; nil for nothing
	readAt, writeAt int64    // of file
}

func (s *overflow) len() int64 { return int64(len(s.mem)) + s.writeAt - s.readAt }

// append adds a copy of b at the end. After an error the overflow can't be used any more.
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
	// The file also holds what next has returned, until it is empty.
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

// appendMemory adds b in memory, because err says that no file can be made.
func (s *overflow) appendMemory(b []byte, err error) error {
	if s.all == nil || !reserve(&s.all.inMemory, int64(len(b)), maxInMemory) {
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	s.mem = append(s.mem, b...)
	s.inMemory += int64(len(b))
	return nil
}

// next removes some bytes from the front and returns them, none if the overflow is empty. It may
// use buf for them.
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

// clear empties the overflow.
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
