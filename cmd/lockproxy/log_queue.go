package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// maxQueuedLog bounds the lines of the log that wait to be written, bytes.
	maxQueuedLog = 1 << 20
	// logPatience is how long the end of the program waits until they are written. The last says why
	// it ends, and a busy machine can take seconds for it.
	logPatience = 5 * time.Second
)

// lostLines is what the log says when it can.
const lostLines = "nobody read standard error in time: lines of the log were dropped"

// logQueue writes the log from a goroutine of its own: who logs must not wait for a standard error
// that nobody reads, least of all an event loop. Lines for which there is no room are lost.
type logQueue struct {
	out  io.Writer
	told func(lost int) // logs that lines were lost; set before the first is

	mu    sync.Mutex
	more  *sync.Cond
	lines [][]byte // guarded by mu
	bytes int      // guarded by mu; of lines and of those that are being written
	lost  int      // guarded by mu; lines since told was called
	ends  bool     // guarded by mu
	ended chan struct{}
}

func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, ended: make(chan struct{})}
	q.more = sync.NewCond(&q.mu)
	go q.run() // ends by close
	return q
}

// Write queues a line. It never waits.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(line) > maxQueuedLog {
		q.lost++
		return len(line), nil
	}
	q.lines = append(q.lines, bytes.Clone(line))
	q.bytes += len(line)
	q.more.Signal()
	return len(line), nil
}

func (q *logQueue) run() {
	defer close(q.ended)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.lines) == 0 {
			if q.ends {
				return
			}
			q.more.Wait()
		}
		lines := q.lines
		q.lines = nil
		for _, line := range lines {
			q.mu.Unlock()
			q.out.Write(line) // there is no other place to report a failure
			q.mu.Lock()
			q.bytes -= len(line)
		}
		if lost := q.lost; lost > 0 {
			q.lost = 0
			q.mu.Unlock()
			q.told(lost)
			q.mu.Lock()
		}
	}
}

// close returns when all is written, or after logPatience.
func (q *logQueue) close() {
	q.mu.Lock()
	q.ends = true
	q.more.Signal()
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-time.After(logPatience):
	}
}
