package mutate

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// command runs a program, and uses the build cache of this run. The program's own children end with
// it when ctx ends.
func (o *overlay) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOCACHE="+o.cache())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

func (o *overlay) cache() string { return filepath.Join(o.dir, "cache") }

// seedCache links all files of the user's build cache into the cache of this run, so that only what
// depends on a change is compiled. A file that cannot be linked, from another file system say, is
// compiled again. Nothing of a run stays in the user's cache, which go trims after days only.
func (o *overlay) seedCache(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	from := string(bytes.TrimSpace(out))
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // go has just removed it
		}
		to := filepath.Join(o.cache(), strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		if filepath.Dir(path) != from { // go notes there when it has trimmed the cache
			_ = os.Link(path, to)
		}
		return nil
	})
}
