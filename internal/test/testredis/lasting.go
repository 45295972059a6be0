package testredis

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Lasting is servers and folders for all tests of a package. The zero value has none. End it in
// TestMain, behind m.Run.
type Lasting struct {
	mu      sync.Mutex
	tb      *lastingTB
	cluster *Cluster
}

// Cluster starts a cluster, as StartCluster does, the first time, and returns the same later. Tests
// should leave it as they found it, but for its keys.
func (l *Lasting) Cluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cluster == nil {
		l.cluster = StartCluster(l.life(), masters, replicas, args...)
	}
	same := *l.cluster
	same.t = t
	return &same
}

// TempDir makes a folder for what several tests use.
func (l *Lasting) TempDir() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life().TempDir()
}

// life is that of the servers.
func (l *Lasting) life() testing.TB {
	if l.tb == nil {
		l.tb = &lastingTB{}
	}
	return l.tb
}

// End stops the servers and removes the folders.
func (l *Lasting) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tb != nil {
		l.tb.end()
	}
}

// lastingTB is a test that lasts as long as the package's.
type lastingTB struct {
	testing.TB // nil: what isn't below isn't used here
	cleanups   []func()
}

func (*lastingTB) Helper()               {}
func (*lastingTB) Name() string          { return "lasting" }
func (*lastingTB) Failed() bool          { return false }
func (*lastingTB) Logf(string, ...any)   {}
func (b *lastingTB) Cleanup(what func()) { b.cleanups = append(b.cleanups, what) }

func (b *lastingTB) Fatal(args ...any) { b.fail(fmt.Sprint(args...)) }

func (b *lastingTB) Fatalf(format string, args ...any) { b.fail(fmt.Sprintf(format, args...)) }

func (b *lastingTB) fail(text string) {
	b.end()
	panic(text)
}

// TempDir is a directory that goes with the servers.
func (b *lastingTB) TempDir() string {
	dir, err := os.MkdirTemp("", "lockproxy-test-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (b *lastingTB) end() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
	b.cleanups = nil
}
