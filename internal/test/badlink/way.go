package badlink

import (
	"bytes"
	"net"
	"sync/atomic"
	"time"
)

// way brings pieces to a connection, each after its delay. It is for one goroutine.
type way struct {
	to      net.Conn
	travels chan piece            // nil until something travels
	ended   chan struct{}         // closed when all pieces have arrived
	failed  atomic.Pointer[error] // of pieces that arrived
}

type piece struct {
	at   time.Time // when it arrives
	data []byte
}

// maxTravelling bounds how many pieces travel, each of 32 KB at most.
const maxTravelling = 64

// write returns the error of earlier pieces, if they are delayed.
func (w *way) write(data []byte, after time.Duration) error {
	if w.travels == nil && after == 0 {
		_, err := w.to.Write(data)
		return err
	}
	if w.travels == nil {
		w.travels, w.ended = make(chan piece, maxTravelling), make(chan struct{})
		go w.deliver() // ends with travels; end closes that and waits
	}
	w.travels <- piece{time.Now().Add(after), bytes.Clone(data)}
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *way) deliver() {
	defer close(w.ended)
	for p := range w.travels {
		if w.failed.Load() != nil {
			continue
		}
		time.Sleep(time.Until(p.at))
		if _, err := w.to.Write(p.data); err != nil {
			w.failed.Store(&err)
		}
	}
}

// end returns when everything has arrived, or can't.
func (w *way) end() {
	if w.travels != nil {
		close(w.travels)
		<-w.ended
		w.travels = nil
	}
}
