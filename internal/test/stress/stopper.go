package stress

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockproxy/internal/test/testredis"
)

// A server runs for up to maxRun, and is then stopped for a time between minStop and maxStop.
const (
	maxRun   = 8 * time.Second
	minStop  = 300 * time.Millisecond
	maxStop  = 2 * time.Second
	lookEach = 50 * time.Millisecond
)

// stopper stops the redis-servers below root, and lets them go on.
type stopper struct {
	root    int // a process
	servers map[int]*server
	rand    *rand.Rand
	stops   int
}

// server is a process. While stopped, it goes on at next; otherwise it is stopped then.
type server struct {
	stopped bool
	next    time.Time
}

func (s *stopper) run(over <-chan struct{}) {
	defer func() {
		for pid, srv := range s.servers {
			s.goOn(pid, srv)
		}
	}()
	for !isOver(over) {
		s.turn(time.Now())
		time.Sleep(lookEach)
	}
}

// turn does what is due.
func (s *stopper) turn(now time.Time) {
	running := redisServers(s.root)
	for pid := range s.servers {
		if !running[pid] {
			delete(s.servers, pid)
		}
	}
	for pid := range running {
		srv := s.servers[pid]
		switch {
		case srv == nil:
			s.servers[pid] = &server{next: now.Add(s.upTo(maxRun))}
		case now.Before(srv.next):
		case srv.stopped:
			s.goOn(pid, srv)
			srv.next = now.Add(s.upTo(maxRun))
		default:
			syscall.Kill(pid, syscall.SIGSTOP)
			srv.stopped, srv.next = true, now.Add(minStop+s.upTo(maxStop-minStop))
			s.stops++
		}
	}
}

func (s *stopper) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

// goOn ends a stop, unless a test has paused the server.
func (s *stopper) goOn(pid int, srv *server) {
	if !srv.stopped {
		return
	}
	srv.stopped = false
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd", testredis.PausedFile))
	if err != nil {
		syscall.Kill(pid, syscall.SIGCONT)
	}
}

// isFetched reports whether a process is a server that testredis/version.sh has fetched: it has the
// name of the loader of its libraries, and a title with its path. The process's file is its stat.
func isFetched(file string) bool {
	words, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
	return strings.Contains(string(words), "-server ")
}

// redisServers are the redis-servers that descend from root.
func redisServers(root int) map[int]bool {
	parents, found := map[int]int{}, map[int]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range dirs {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// number (name) state parent …
		before, after, _ := strings.Cut(string(stat), ") ")
		number, name, _ := strings.Cut(before, " (")
		fields := strings.Fields(after)
		pid, err := strconv.Atoi(number)
		if err != nil || len(fields) < 2 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		found[pid] = name == "redis-server" ||
			strings.HasPrefix(name, "ld-linux") && isFetched(file)
	}
	for pid, is := range found {
		ancestor := pid
		for is && ancestor > 1 && ancestor != root {
			ancestor = parents[ancestor]
		}
		if !is || ancestor != root {
			delete(found, pid)
		}
	}
	return found
}
