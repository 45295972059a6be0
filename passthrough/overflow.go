package passthrough

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"lockproxy/internal/loopguard"
)

const (
	// overflowMemory is how much of an overflow is in memory, bytes. A client that has no socket
	// takes all that it is given from there: what is read at once must not need a file.
	overflowMemory = loopBuf
	// maxOverflow bounds an overflow, file included, bytes: more than the largest reply of Redis by
	// default.
	maxOverflow = 512<<20 + 1<<20
	// maxInMemory bounds what all overflows together keep in memory where no file can be made,
	// beyond overflowMemory each, bytes.
	maxInMemory = 32 << 20
	// maxUnspilled bounds what all overflows together keep in memory until their files take it,
	// bytes.
	maxUnspilled = 128 << 20
)

// unreadTotal bounds what all clients together leave unread.
type unreadTotal struct {
	limit             int64        // of the files, bytes
	inFiles, inMemory atomic.Int64 // bytes for files, and in memory where no file can be made
	unspilled         atomic.Int64 // bytes for files that are not there yet
	// dropped is called for each client that is closed for what it leaves unread.
	dropped func(client net.Addr, err error)
}

// reserve adds n to used, unless that exceeds limit.
func reserve(used *atomic.Int64, n, limit int64) bool {
	if used.Add(n) <= limit {
		return true
	}
	used.Add(-n)
	return false
}

// overflow is a queue of bytes. Bytes beyond overflowMemory are in an unnamed file, which ends with
// the process, or in memory if no file can be made, up to a bound. It does no I/O itself, since an
// event loop may use it: a goroutine spills to the file and reads it, see spill and fileRead. Not
// safe for concurrent use.
type overflow struct {
	all             *unreadTotal
	mem             []byte
	inMemory        int64    // bytes of mem that all.inMemory counts
	taken           int64    // likewise, of what next has returned last: until written
	file            *os.File // what follows mem; nil for nothing
	readAt, writeAt int64    // of file
	spilling        []byte   // what follows: a spill is under way
	tail            []byte   // what follows, for the next spill
	reserved        int64    // bytes that all.inFiles counts
	// openFile makes the file
	openFile func() (*os.File, error)
}

// unnamedFile makes a file that ends with the process.
func unnamedFile() (*os.File, error) {
	loopguard.MayWait()
	file, err := os.CreateTemp("", "lockproxy-unread-")
	if err == nil {
		os.Remove(file.Name())
	}
	return file, err
}

func (o *overflow) len() int64 { return int64(len(o.mem)) + o.writeAt - o.readAt + o.unspilled() }

// unspilled is how many bytes are on their way to the file.
func (o *overflow) unspilled() int64 { return int64(len(o.spilling) + len(o.tail)) }

// append adds a copy of b at the end. After an error the overflow can't be used any more.
func (o *overflow) append(b []byte) error {
	if o.file == nil && o.unspilled() == 0 && len(o.mem)+len(b) <= overflowMemory {
		o.mem = append(o.mem, b...)
		return nil
	}
	n := int64(len(b))
	if o.len()+n > maxOverflow {
		return errors.New("the client leaves too much unread")
	}
	// The file also holds what has been read, until it is empty.
	if !reserve(&o.all.inFiles, n, o.all.limit) {
		return errors.New("all clients together leave too much unread")
	}
	o.reserved += n
	if !reserve(&o.all.unspilled, n, maxUnspilled) {
		return errors.New("the files for what clients leave unread are too slow")
	}
	o.tail = append(o.tail, b...)
	return nil
}

// spill is the writing of some bytes to the file of an overflow.
type spill struct {
	data   []byte
	file   *os.File // if it is nil, open makes it
	open   func() (*os.File, error)
	at     int64
	noFile error // why it could not be made
	failed error // why it was not written
}

// beginSpill begins to move what follows the file there. due is false if there is nothing to move.
// The caller calls write, which may wait, and then endSpill.
func (o *overflow) beginSpill() (s *spill, due bool) {
	if len(o.tail) == 0 || o.spilling != nil {
		return nil, false
	}
	o.spilling, o.tail = o.tail, nil
	return &spill{data: o.spilling, file: o.file, at: o.writeAt, open: o.openFile}, true
}

func (s *spill) write() {
	loopguard.MayWait()
	if s.file == nil {
		if s.file, s.noFile = s.open(); s.noFile != nil {
			return
		}
	}
	_, s.failed = s.file.WriteAt(s.data, s.at)
}

// endSpill records what write has done. After an error the overflow can't be used any more.
func (o *overflow) endSpill(s *spill) error {
	n := int64(len(s.data))
	o.all.unspilled.Add(-n)
	if o.spilling == nil { // it was emptied meanwhile
		if s.file != nil {
			s.file.Close()
		}
		return nil
	}
	o.spilling = nil
	if s.noFile != nil {
		o.unreserve(n)
		if !reserve(&o.all.inMemory, n, maxInMemory) {
			return fmt.Errorf("no room for what the client leaves unread: %w", s.noFile)
		}
		o.mem = append(o.mem, s.data...)
		o.inMemory += n
		return nil
	}
	o.file = s.file
	if s.failed != nil {
		return fmt.Errorf("no room for what the client leaves unread: %w", s.failed)
	}
	o.writeAt += n
	return nil
}

func (o *overflow) unreserve(n int64) {
	o.reserved -= n
	o.all.inFiles.Add(-n)
}

// fileRead is where the front of an overflow is in its file.
type fileRead struct {
	file *os.File
	at   int64
	n    int64 // how much is there
}

// next removes some bytes from the front and returns them, or says where in the file they are: the
// caller reads some, and calls hasRead. Neither means that a spill must end first, or that the
// overflow is empty. Bytes count as kept until written.
func (o *overflow) next() (b []byte, from *fileRead) {
	switch {
	case len(o.mem) > 0:
		b = o.mem
		o.mem, o.inMemory, o.taken = nil, 0, o.inMemory
	case o.writeAt > o.readAt:
		from = &fileRead{o.file, o.readAt, o.writeAt - o.readAt}
	case o.file != nil: // hasRead closes it when it has been read
	case o.spilling == nil && len(o.tail) > 0 && len(o.tail) <= overflowMemory:
		b, o.tail = o.tail, nil
		o.all.unspilled.Add(-int64(len(b)))
		o.unreserve(int64(len(b)))
	}
	return b, from
}

// hasRead removes n bytes from the front, which were read from the file. If the overflow is empty
// then, it returns the file, which the caller closes.
func (o *overflow) hasRead(n int) (unused *os.File) {
	if o.readAt += int64(n); o.len() == 0 {
		unused = o.clear()
	}
	return unused
}

// clear empties the overflow. The caller closes the file, unless it is nil: that can wait.
func (o *overflow) clear() (file *os.File) {
	o.dropMemory()
	o.all.unspilled.Add(-int64(len(o.tail)))
	o.unreserve(o.reserved)
	file = o.file
	o.file, o.readAt, o.writeAt, o.spilling, o.tail = nil, 0, 0, nil, nil
	return file
}

// written says that what next has returned last is not kept any more.
func (o *overflow) written() {
	o.all.inMemory.Add(-o.taken)
	o.taken = 0
}

func (o *overflow) dropMemory() {
	o.all.inMemory.Add(-o.inMemory)
	o.mem, o.inMemory = nil, 0
}
