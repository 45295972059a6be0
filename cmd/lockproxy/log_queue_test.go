package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/testwait"
)

// blockedWriter takes nothing until it is open.
type blockedWriter struct {
	open chan struct{}
	bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.open
	return w.Buffer.Write(p)
}

// A goroutine that logs does not wait for a standard error that nobody reads. Once it is read, the
// lines come in their order, and the log says how many were lost.
func TestLogDoesNotWait(t *testing.T) {
	out := &blockedWriter{open: make(chan struct{})}
	q := newLogQueue(out)
	log := newLogger(&options{}, q)
	q.told = func(lost int) { log.Warn(lostLines, "lines", lost) }
	logged := make(chan int)
	go func() { // ends once it is received
		size := 0
		for i := range 40 {
			text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", maxQueuedLog/32))
			log.Info(text)
			size += len(text)
		}
		logged <- size
	}()
	testwait.For(t, "all is logged", logged)
	close(out.open)
	q.close()
	<-q.ended
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, lostLines) || !strings.Contains(last, fmt.Sprint("lines=", 41-len(lines))) {
		t.Errorf("%d lines have come, the last is %.200q", len(lines), last)
	}
	for i, line := range lines[:len(lines)-1] {
		if !strings.Contains(line, fmt.Sprintf(": line %d ", i)) {
			t.Errorf("line %d is %.100q", i, line)
		}
	}
}
