package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockproxy/internal/test/testwait"
)

// subreaper makes a program inherit orphans, as process 1 of a container does.
const subreaper = "LOCKPROXY_TEST_SUBREAPER"

func init() {
	if os.Getenv(subreaper) != "" {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// A run that inherits orphans leaves no zombies.
func TestRunReapsOrphans(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pids")
	run := spawn(t, []string{"LOCKPROXY_URL=" + s.url, subreaper + "=1"}, "run", "--key", "job", "--",
		"sh", "-c", `for i in 1 2 3 4 5; do (sh -c "echo \$\$ >>`+file+`" & exec true) & done; `+
			`read x <`+fifo(t, file)+`; exit 3`)
	for _, pid := range pidsIn(t, file, 5, run) {
		testwait.Until(t, "the orphan is taken away", func() bool {
			return syscall.Kill(pid, 0) == syscall.ESRCH
		})
	}
	goOn(t, file)
	run.wantStatus(3, "")
}
