// Package worker is what the Go programs of examples/older have in common: their command line, the
// loop, the check that nobody else is inside, and the line of JSON at the end. The programs in
// other languages do the same in their own words.
package worker

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Worker is one program's run.
type Worker struct {
	*redis.Client
	Key      string
	Deadline time.Time // no more tries after it
	Report   Report
}

// Report is what a program prints. Releases that the lock refused, or that the recipe left out, are
// in Unreleased.
type Report struct {
	Program        string `json:"program"`
	Acquisitions   int    `json:"acquisitions"`
	Failures       int    `json:"failures"` // tries that found the lock held
	Violations     int    `json:"violations"`
	SameViolations int    `json:"same_violations"` // those among users of the same program
	Unreleased     int    `json:"unreleased"`
	NilErrors      int    `json:"nil_errors"`
	LongestWaitMS  int64  `json:"longest_wait_ms"`
}

// Lock is a recipe. Acquire returns false once w.Deadline has passed; Release, whether it freed the
// lock.
type Lock interface {
	Acquire(w *Worker) bool
	Release(w *Worker) bool
}

// Main runs the program: HOST PORT KEY SECONDS-TO-RUN and options, to which the program may have
// added with the flag package.
func Main(program string, lock Lock) {
	pause := flag.Int("pause", 0, "`ms` between a release and the next try")
	crash := flag.Bool("crash", false, "end after the first acquisition, without a release")
	usage := func() {
		fmt.Fprintf(os.Stderr, "usage: %s HOST PORT KEY SECONDS-TO-RUN [options]\n", program)
		flag.PrintDefaults()
		os.Exit(2)
	}
	if len(os.Args) < 5 {
		usage()
	}
	flag.Usage = usage
	flag.CommandLine.Parse(os.Args[5:])
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	if err != nil || flag.NArg() > 0 {
		usage()
	}

	w := &Worker{
		// One connection. MaxRetries: a SETNX repeated after a lost reply would find its own lock.
		Client: redis.NewClient(&redis.Options{
			Addr: os.Args[1] + ":" + os.Args[2], Protocol: 2,
			PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
			ReadTimeout: time.Duration(seconds+30) * time.Second,
		}),
		Key:      os.Args[3],
		Deadline: time.Now().Add(time.Duration(seconds * float64(time.Second))),
		Report:   Report{Program: program},
	}
	for !w.Over() {
		began := time.Now()
		acquired := lock.Acquire(w)
		w.Report.LongestWaitMS = max(w.Report.LongestWaitMS, time.Since(began).Milliseconds())
		if !acquired {
			continue
		}
		w.Report.Acquisitions++
		w.inside()
		if *crash {
			break
		}
		if !lock.Release(w) {
			w.Report.Unreleased++
		}
		w.Sleep(time.Duration(*pause) * time.Millisecond)
	}
	json.NewEncoder(os.Stdout).Encode(w.Report)
}

// Over reports whether the run is to end.
func (w *Worker) Over() bool { return !time.Now().Before(w.Deadline) }

// Sleep waits, but not past the end of the run.
func (w *Worker) Sleep(d time.Duration) { time.Sleep(min(d, time.Until(w.Deadline))) }

// Call sends a command and ends the program if it fails. A nil reply is nil.
func (w *Worker) Call(args ...any) any {
	reply, err := w.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		fmt.Fprintf(os.Stderr, "%s: %v: %v\n", w.Report.Program, args[0], err)
		os.Exit(1)
	}
	return reply
}

// inside is the work under the lock: it finds out whether anybody else is at it, and adds 1 in a
// way that loses counts if so.
func (w *Worker) inside() {
	if w.Call("INCR", w.Key+":inside") != int64(1) {
		w.Report.Violations++
	}
	marker := w.Key + ":inside:" + w.Report.Program
	if w.Call("INCR", marker) != int64(1) {
		w.Report.SameViolations++
	}
	text, _ := w.Call("GET", w.Key+":counter").(string)
	n, _ := strconv.Atoi(text)
	time.Sleep(time.Duration(1000+rand.IntN(2000)) * time.Microsecond)
	w.Call("SET", w.Key+":counter", n+1)
	w.Call("DECR", marker)
	w.Call("DECR", w.Key+":inside")
}
