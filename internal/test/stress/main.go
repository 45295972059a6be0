package stress

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Main runs the command that its arguments name, and returns the command's exit status.
func Main(args []string) int {
	flags := flag.NewFlagSet("locktools stress", flag.ExitOnError)
	limit := flags.Duration("for", time.Hour, "end the command after this time")
	seed := flags.Uint64("seed", 0, "the seed of the stops; 0 chooses one at random")
	flags.Parse(args)
	if flags.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: locktools stress [--for 1h] [--seed n] command...")
		return 2
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	return run(ctx, *seed, flags.Args())
}

// run returns the command's exit status.
func run(ctx context.Context, seed uint64, command []string) (status int) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// All processes that the command starts end with it, unless they have groups of their own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		return 1
	}
	over := make(chan struct{})
	var all sync.WaitGroup // ends with over
	for range runtime.NumCPU() {
		all.Go(func() { burn(over) })
	}
	all.Go(func() { writeAndSync(over) })
	s := &stopper{root: cmd.Process.Pid, servers: map[int]*server{},
		rand: rand.New(rand.NewPCG(seed, 0))}
	all.Go(func() { s.run(over) })
	err := cmd.Wait()
	close(over)
	all.Wait()
	fmt.Fprintf(os.Stderr, "stress: servers stopped %d times, seed %d; %v\n", s.stops, seed,
		cmd.ProcessState)
	if err != nil {
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// burn takes one core.
func burn(over <-chan struct{}) {
	for n := 0; ; n++ {
		if n%1_000_000 == 0 && isOver(over) {
			return
		}
	}
}

// writeAndSync keeps the disk busy.
func writeAndSync(over <-chan struct{}) {
	file, err := os.CreateTemp("", "lockproxy-stress-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	for block := make([]byte, 1<<20); !isOver(over); {
		file.WriteAt(block, rand.Int64N(64)<<20)
		file.Sync()
	}
}

func isOver(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}
