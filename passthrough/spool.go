package passthrough

import (
	"errors"
	"fmt"
	"os"
)

const (
	// spoolMemory is how much of a spool is kept in memory, bytes.
	spoolMemory = 64 << 10
	// maxSpool bounds a spool, file included, bytes: as long as the largest reply that Redis gives by default.
	maxSpool = 512<<20 + 1<<20
)

// spool is a queue of bytes whose memory is bounded: what is beyond spoolMemory waits in a file without a name, which goes
// with the process. Its zero value is empty. Not safe for concurrent use.
type spool struct {
	mem         []byte
	file        *os.File // what came behind mem; nil if nothing did
	read, write int64    // of file
}

func (s *spool) len() int64 { return int64(len(s.mem)) + s.write - s.read }

// append adds a copy of b at the end. After an error, which says that there is no room for a file, the spool is of no use.
func (s *spool) append(b []byte) error {
	if s.file == nil && len(s.mem)+len(b) <= spoolMemory {
		s.mem = append(s.mem, b...)
		return nil
	}
	if s.len()+int64(len(b)) > maxSpool {
		return errors.New("the client leaves too much unread")
	}
	if s.file == nil {
		file, err := os.CreateTemp("", "lockproxy-unread-")
		if err != nil {
			return fmt.Errorf("no room for what the client leaves unread: %w", err)
		}
		os.Remove(file.Name())
		s.file = file
	}
	if _, err := s.file.WriteAt(b, s.write); err != nil {
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	s.write += int64(len(b))
	return nil
}

// take removes bytes from the front, as many as it likes but some if there are any, and returns them. buf is memory it may use.
func (s *spool) take(buf []byte) ([]byte, error) {
	if len(s.mem) > 0 {
		b := s.mem
		s.mem = nil
		return b, nil
	}
	if s.file == nil {
		return nil, nil
	}
	n, err := s.file.ReadAt(buf[:min(int64(len(buf)), s.write-s.read)], s.read)
	s.read += int64(n)
	if n > 0 {
		err = nil
	}
	if s.read == s.write {
		s.clear()
	}
	return buf[:n], err
}

// clear drops all.
func (s *spool) clear() {
	s.mem = nil
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.read, s.write = nil, 0, 0
}
