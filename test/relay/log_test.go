package relay_test

import (
	"bytes"
	"strings"
	"sync"
)

// lockedLog keeps what is logged.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lockedLog) count(part string) int { return strings.Count(l.String(), part) }

// line is the first one that has part in it.
func (l *lockedLog) line(part string) string {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}
