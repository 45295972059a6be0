//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// verdicts is a test that notes why it has failed.
type verdicts struct {
	testing.TB
	mu   sync.Mutex
	list []string // guarded by mu
	ends []func() // guarded by mu
}

func (v *verdicts) add(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, text)
}

func (v *verdicts) Helper()                      {}
func (v *verdicts) Logf(string, ...any)          {}
func (v *verdicts) Error(args ...any)            { v.add(fmt.Sprint(args...)) }
func (v *verdicts) Errorf(text string, a ...any) { v.add(fmt.Sprintf(text, a...)) }
func (v *verdicts) Fatal(args ...any)            { v.Error(args...); runtime.Goexit() }
func (v *verdicts) Fatalf(text string, a ...any) { v.Errorf(text, a...); runtime.Goexit() }

func (v *verdicts) Cleanup(end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ends = append(v.ends, end)
}

// The history of ONCE finds each way in which a server can break the contract, and nothing in one
// that keeps it.
func TestOnceHistoryFindsBugs(t *testing.T) {
	for bug, c := range map[string]struct {
		loses bool // claims are lost
		want  string
	}{
		"":                    {false, ""},
		"none, claims lost":   {true, ""},
		"two makers":          {false, "at once"},
		"another value given": {false, "which no DONE was sent"},
		"older value given":   {false, "is given after that of"},
		"lost claim stored":   {true, "is taken, though"},
		"refused value given": {true, "though its DONE was refused"},
		"waiter forgotten":    {false, "neither a reply nor the end"},
	} {
		virtualtest.Run(t, func(t *testing.T) {
			toy, v := startOnceToy(bug), &verdicts{TB: t}
			addr := toy.ln.Addr().String()
			h := &proxytest.OnceHistory{T: v, Addrs: []string{addr}, Loses: c.loses,
				Keys: []string{"a", "b"}}
			ran := make(chan struct{})
			go func() { // ends with the history, also if that is given up
				defer close(ran)
				h.Run(12, 20, 20, func(*rand.Rand) {
					for range 20 {
						if runtime.Gosched(); c.loses {
							toy.force()
						}
					}
				})
			}()
			<-ran
			toy.ln.Close()
			time.Sleep(time.Hour) // clients of a history that was given up find no server any more
			v.mu.Lock()
			defer v.mu.Unlock()
			for _, end := range v.ends {
				end()
			}
			toy.all.Wait()
			found := strings.Join(v.list, "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("a server whose bug is %q: want %q of\n%.2000s", bug, c.want, found)
			}
		})
	}
}
