package badlink

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

func (l *Link) look() (state State, away time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.away, l.changed
}

// pump passes bytes until either side ends or the link does.
func (l *Link) pump(p *pair, to, from net.Conn, up bool, insert Insertion) {
	buf := make([]byte, 32<<10)
	way := &way{to: to}
	defer way.end()
	pass := func(data []byte) error {
		_, away, _ := l.look()
		return way.write(data, away)
	}
	var inserting *replies
	if insert != nil { // otherwise what comes can be a replication stream: it is not looked at
		inserting = &replies{insert: insert, write: pass}
		if inserting.begin() != nil {
			return
		}
	}
	// the peer has closed; from is read to its end nevertheless, or it would see a reset
	over := false
	for {
		most := len(buf)
		if state, _, _ := l.look(); state.Piece > 0 {
			most = min(most, state.Piece)
		}
		n, err := from.Read(buf[:most])
		if n > 0 {
			held, ok := l.awaitThaw(p)
			if ok = ok && l.delay(p.ctx, n, up); !ok {
				l.hold(-held)
				return
			}
			data := buf[:n]
			l.corrupt(data)
			var torn *tear
			if !up {
				data, torn = l.tornIn(data)
			}
			var werr error
			if inserting != nil {
				werr = inserting.pass(data)
			} else if len(data) > 0 {
				werr = pass(data)
			}
			l.hold(-held)
			if torn != nil {
				way.end()
				p.drop(torn.reset)
				close(torn.torn)
				return
			}
			if errors.Is(werr, syscall.ECONNRESET) && !over {
				drop(from, true)
				return
			}
			over = over || werr != nil
		}
		if errors.Is(err, syscall.ECONNRESET) {
			drop(to, true)
		}
		if err != nil {
			return
		}
	}
}

// delay holds back n bytes for as long as the state says. It returns false when the connection ends
// first.
func (l *Link) delay(ctx context.Context, n int, up bool) bool {
	waited := false
	for {
		state, _, changed := l.look()
		var passed <-chan time.Time
		if up && state.HoldUp || !up && state.HoldDn {
			l.hold(1)
		} else {
			pause := state.Latency
			if state.Rate > 0 {
				pause += time.Duration(n) * time.Second / time.Duration(state.Rate)
			}
			if waited || pause == 0 {
				return ctx.Err() == nil
			}
			waited, changed, passed = true, nil, time.After(pause)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-passed:
		}
		if changed != nil {
			l.hold(-1)
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

func (l *Link) hold(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
}

func (l *Link) corrupt(piece []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Corrupt == 0 {
		return
	}
	for i := range piece {
		if l.random.Float64() < l.state.Corrupt {
			piece[i] ^= 1 << l.random.IntN(8)
		}
	}
}
