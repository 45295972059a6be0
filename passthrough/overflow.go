package passthrough

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

const (
	// overflowMemory is how much of an overflow is in memory, bytes. A client with TLS takes all that
	// it is given from there: what is read at once must not need a file.
	overflowMemory = loopBuf
	// maxOverflow bounds an overflow, file included, bytes: more than the largest reply of Redis by
	// default.
	maxOverflow = 512<<20 + 1<<20
	// maxInMemory bounds what all overflows together keep in memory where no file can be made,
	// beyond overflowMemory each, bytes.
	maxInMemory = 32 << 20
)

// unreadTotal bounds what all clients together leave unread.
type unreadTotal struct {
	limit             int64        // of the files, bytes
	inFiles, inMemory atomic.Int64 // bytes in files, and in memory where no file can be made
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

// overflow is a queue of bytes. What exceeds overflowMemory is in an unnamed file, which ends with
// the process, or in memory if no file can be made, up to a bound. Not safe for concurrent use.
type overflow struct {
	all             *unreadTotal
	mem             []byte
	inMemory        int64    // bytes of mem that all.inMemory counts
	file            *os.File // what follows mem; nil for nothing
	readAt, writeAt int64    // of file
}

func (o *overflow) len() int64 { return int64(len(o.mem)) + o.writeAt - o.readAt }

// append adds a copy of b at the end. After an error the overflow can't be used any more.
func (o *overflow) append(b []byte) error {
	if o.file == nil && len(o.mem)+len(b) <= overflowMemory {
		o.mem = append(o.mem, b...)
		return nil
	}
	if o.len()+int64(len(b)) > maxOverflow {
		return errors.New("the client leaves too much unread")
	}
	if o.file == nil {
		file, err := os.CreateTemp("", "lockproxy-unread-")
		if err != nil {
			return o.appendMemory(b, err)
		}
		os.Remove(file.Name())
		o.file = file
	}
	// The file also holds what next has returned, until it is empty.
	if !reserve(&o.all.inFiles, int64(len(b)), o.all.limit) {
		return errors.New("all clients together leave too much unread")
	}
	if _, err := o.file.WriteAt(b, o.writeAt); err != nil {
		o.all.inFiles.Add(-int64(len(b)))
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	o.writeAt += int64(len(b))
	return nil
}

// appendMemory adds b in memory, because err says that no file can be made.
func (o *overflow) appendMemory(b []byte, err error) error {
	if !reserve(&o.all.inMemory, int64(len(b)), maxInMemory) {
		return fmt.Errorf("no room for what the client leaves unread: %w", err)
	}
	o.mem = append(o.mem, b...)
	o.inMemory += int64(len(b))
	return nil
}

// next removes some bytes from the front and returns them, none if the overflow is empty. It may
// use buf for them.
func (o *overflow) next(buf []byte) ([]byte, error) {
	if len(o.mem) > 0 {
		b := o.mem
		o.dropMemory()
		return b, nil
	}
	if o.file == nil {
		return nil, nil
	}
	n, err := o.file.ReadAt(buf[:min(int64(len(buf)), o.writeAt-o.readAt)], o.readAt)
	o.readAt += int64(n)
	if n > 0 {
		err = nil
	}
	if o.readAt == o.writeAt {
		o.clear()
	}
	return buf[:n], err
}

// clear empties the overflow.
func (o *overflow) clear() {
	o.dropMemory()
	if o.file != nil {
		o.file.Close()
	}
	o.all.inFiles.Add(-o.writeAt)
	o.file, o.readAt, o.writeAt = nil, 0, 0
}

func (o *overflow) dropMemory() {
	o.all.inMemory.Add(-o.inMemory)
	o.mem, o.inMemory = nil, 0
}
