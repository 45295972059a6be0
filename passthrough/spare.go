package passthrough

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/cluster"
	"lockproxy/internal/resp"
)

// spare is a connection that nobody uses, logged in and set up as setup says. Somebody reads it all the while, so that its end is
// noticed at once: see watch.
type spare struct {
	conn    net.Conn
	setup   Setup
	since   time.Time
	taken   bool          // guarded by Lanes.mu; what becomes of it is not the watcher's business any more
	alive   bool          // the watcher was told to stop before anything came; to be read once watched is closed
	watched chan struct{} // closed when nobody reads it any more

	asking sync.Mutex // held while its watcher asks the upstream something
	wanted bool       // guarded by asking; the watcher is to stop
}

const (
	// maxSpareAge is how long a spare is kept beyond those that are in reserve.
	maxSpareAge = 10 * time.Second
	// maxSpares is how many of one login are kept beyond those.
	maxSpares = 128
	// maxIdle is how many there may be of all logins together, unless a single one's reserve is larger, or the upstream lets in so few clients that
	// it must be less: see BoundReserve.
	maxIdle = 1024
)

// keepSpare keeps p's own connection, which it left as it was but for what setup says, for whoever needs one. Until p uses another
// connection this one's end is the end of its login.
func (ls *Lanes) keepSpare(p *Pipe, conn net.Conn, setup Setup) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		conn.Close()
		return
	}
	g := ls.enterLocked(p, setup.Identity)
	if ls.loggedIn(setup.Identity) {
		g.resting[p] = struct{}{}
	}
	ls.keepLocked(g, conn, setup)
}

// keepLocked gives conn to the first who waits for one, or makes it a spare. mu is held.
func (ls *Lanes) keepLocked(g *group, conn net.Conn, setup Setup) {
	if len(g.line) > 0 {
		g.serveLocked(&spare{conn: conn, setup: setup})
		return
	}
	if ls.closed || ls.idle >= ls.maxIdle {
		conn.Close()
		return
	}
	s := &spare{conn: conn, setup: setup, since: time.Now(), watched: make(chan struct{})}
	g.idle = append(g.idle, s)
	ls.idle++
	ls.running.Add(1)
	go ls.watch(s) // ends when it is taken, or with the connection; Close closes that and waits
	if len(g.idle) > ls.worthKeeping(g)+maxSpares {
		ls.closeLocked(g, 0)
	}
	ls.expireLocked(g)
}

// watch reads a spare until it is taken, or ends.
func (ls *Lanes) watch(s *spare) {
	defer ls.running.Done()
	s.alive = s.rest(&ls.stayAwake)
	close(s.watched)
	ls.mu.Lock()
	g := ls.groups[loginOf(s.setup.Identity)]
	if s.taken || g == nil {
		ls.mu.Unlock()
		return
	}
	for i, other := range g.idle {
		if other == s {
			ls.closeLocked(g, i)
			break
		}
	}
	ended := ls.bereavedLocked(g)
	ls.topUpLocked(g)
	ls.dropLocked(g)
	ls.mu.Unlock()
	for p := range ended {
		p.restLost()
	}
}

// rest reads a spare until it is wanted, which it reports, or ends. Whenever it has been silent for every, in ns, it is asked something; 0 is never.
// An upstream that is slow to answer that is only slow. Pushes, which any client may have the upstream send to it, are skipped.
func (s *spare) rest(every *atomic.Int64) (wanted bool) {
	var b [512]byte
	var scan resp.Scanner
	var by time.Time // once it is wanted, the end of what is still awaited
	owed := false    // an answer is
	for {
		room := len(b)
		s.asking.Lock()
		wanted = s.wanted
		switch {
		case wanted && !owed && !scan.Began():
			s.asking.Unlock()
			return true
		case wanted:
			if by.IsZero() {
				by = time.Now().Add(maxPing)
			}
			room = min(scan.Least(), room) // whatever comes behind that is not for here
			s.conn.SetReadDeadline(by)
		case owed:
			s.conn.SetReadDeadline(time.Time{})
		default:
			s.conn.SetReadDeadline(after(time.Duration(every.Load())))
		}
		s.asking.Unlock()
		n, err := s.conn.Read(b[:room])
		if n > 0 {
			if owed, err = skipPushes(&scan, b[:n], owed); err != nil {
				return false
			}
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || wanted {
			return false
		}
		if !owed {
			if owed, err = s.ping(); err != nil {
				return false
			}
		}
	}
}

// skipPushes takes what has come on a connection on which one reply is awaited, if owed says so, and otherwise none. It returns whether it still is.
func skipPushes(scan *resp.Scanner, data []byte, owed bool) (still bool, err error) {
	for len(data) > 0 {
		n, done, err := scan.Scan(data)
		if err != nil {
			return owed, err
		}
		data = data[n:]
		if scan.Head().Type == '>' {
			continue
		}
		if !owed {
			return false, errUnasked
		}
		owed = !done
	}
	return owed, nil
}

// after is the end of d, or never if d is 0.
func after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// maxPing bounds how long it may take to ask, and for the answer once the spare is wanted.
const maxPing = time.Second

// ping asks for a sign of life, unless the spare is wanted.
func (s *spare) ping() (asked bool, err error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.wanted {
		return false, nil
	}
	s.conn.SetWriteDeadline(time.Now().Add(maxPing))
	_, err = s.conn.Write(resp.AppendCommand(nil, probe))
	s.conn.SetWriteDeadline(time.Time{})
	return err == nil, err
}

// takeSpare returns a connection that is set up so and alive, or nil.
func (ls *Lanes) takeSpare(setup Setup) net.Conn {
	for {
		s := ls.pick(setup.Identity, func(s *spare) bool { return s.setup == setup })
		if s == nil {
			return nil
		}
		if s.release() {
			return s.conn
		}
	}
}

// pick takes the spare of a login that was used last, of those that fit, or returns nil. It is still being watched.
func (ls *Lanes) pick(id Identity, fits func(*spare) bool) *spare {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[loginOf(id)]
	if g == nil {
		return nil
	}
	for i := len(g.idle) - 1; i >= 0; i-- {
		if s := g.idle[i]; fits(s) {
			ls.takeLocked(g, i)
			ls.topUpLocked(g)
			return s
		}
	}
	return nil
}

// release takes a spare from its watcher. It reports whether it is of use; if not it has been closed.
func (s *spare) release() bool {
	if s.watched != nil {
		s.asking.Lock()
		s.wanted = true
		s.conn.SetReadDeadline(time.Unix(1, 0))
		s.asking.Unlock()
		<-s.watched
		s.conn.SetReadDeadline(time.Time{})
	}
	if (s.watched == nil || s.alive) && quiet(s.conn) {
		return true
	}
	s.conn.Close()
	return false
}

// takeLocked removes g's spare number i from those that are idle. mu is held.
func (ls *Lanes) takeLocked(g *group, i int) {
	g.idle[i].taken = true
	g.idle = append(g.idle[:i:i], g.idle[i+1:]...)
	ls.idle--
}

// closeLocked ends g's spare number i; its watcher ends with it. mu is held.
func (ls *Lanes) closeLocked(g *group, i int) {
	conn := g.idle[i].conn
	ls.takeLocked(g, i)
	conn.Close()
}

// expireLocked makes sure that spares of g which are more than its reserve are closed when they are old. mu is held.
func (ls *Lanes) expireLocked(g *group) {
	if !ls.closed && len(g.idle) > ls.worthKeeping(g) {
		due := time.Until(g.idle[0].since.Add(maxSpareAge))
		if ls.expiry == nil {
			ls.expiry, ls.expires = time.AfterFunc(due, ls.expireSpares), g.idle[0].since // Close stops it
		} else if g.idle[0].since.Before(ls.expires) {
			ls.expires = g.idle[0].since
			ls.expiry.Reset(due)
		}
	}
}

func (ls *Lanes) expireSpares() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.expiry = nil
	for _, g := range ls.groups {
		for len(g.idle) > ls.worthKeeping(g) && time.Since(g.idle[0].since) >= maxSpareAge {
			ls.closeLocked(g, 0)
		}
		ls.dropLocked(g)
		ls.expireLocked(g)
	}
}

// quiet reports whether a connection on which nothing is expected is open, and nothing has come on it but pushes, which whoever reads it next
// can tell from replies. With TLS it is not quiet after a push either.
func quiet(conn net.Conn) bool {
	if whole, ok := conn.(*cluster.Conn); ok {
		return whole.Quiet()
	}
	plain := true
	if s, ok := conn.(*secured); ok {
		conn, plain = s.raw, false
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = control.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN) || plain && n == 1 && b[0] == '>'
	})
	return err == nil && silent
}
