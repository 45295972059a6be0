package stress

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

func state(t *testing.T, pid string) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}

// A server of this process is stopped when it is due, and goes on, unless a test pauses it
// meanwhile. Another process's are left alone.
func TestStopper(t *testing.T) {
	redis := testredis.Start(t)
	var id string
	for line := range strings.Lines(redis.Ask("INFO", "server")) {
		if pid, ok := strings.CutPrefix(line, "process_id:"); ok {
			id = strings.TrimSpace(pid)
		}
	}
	if len(redisServers(os.Getppid())) < 1 || len(redisServers(1<<30)) != 0 {
		t.Errorf("below: %v, below none: %v", redisServers(os.Getppid()), redisServers(1<<30))
	}
	s := &stopper{root: os.Getpid(), servers: map[int]*server{}, rand: rand.New(rand.NewPCG(1, 2))}
	now := time.Now()
	stops := func() bool { return state(t, id) == "T" }
	s.turn(now)
	s.turn(now.Add(maxRun))
	testwait.Until(t, "it stops", stops)
	s.turn(now.Add(maxRun + maxStop))
	redis.Ask("PING")
	s.turn(now.Add(2*maxRun + maxStop))
	testwait.Until(t, "it stops again", stops)
	redis.Pause()
	s.turn(now.Add(2 * (maxRun + maxStop)))
	if !stops() {
		t.Error("it goes on, though it is paused")
	}
	redis.Resume()
	redis.Ask("PING")
	if s.stops != 2 {
		t.Errorf("%d stops", s.stops)
	}
}
