package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// seed is the workload by which the old recipes were once judged: clients that share out a number
// of jobs, each of which touches Redis a few times under one lock.
type seed struct {
	contest
	jobs int
}

func newSeed(clients, jobs int, pause time.Duration) *seed {
	return &seed{jobs: jobs, contest: newContest(clients,
		setnxDirect("L1 (SETNX, GET), no sleep", 0),
		setnxDirect(fmt.Sprintf("L1 (SETNX, GET), sleep %v", pause), pause),
		evalDirect(fmt.Sprintf("L4 (EVAL), three tries, sleep %v", pause), pause),
		lockRaw("LOCK WAIT, one proxy", 1, true),
	)}
}

func (j *seed) title() string { return "Seed workload" }

func (j *seed) measure(b *bench, i int) error {
	err := j.lock(b, i, maxRun, drive{oneLock: true, jobs: j.jobs,
		inside: func(l locker) error { return touch(l.(doer)) }})
	if err != nil {
		return err
	}
	return j.check(b)
}

// doer is a locker whose connection also does the work under the lock.
type doer interface {
	do(args ...string) (reply, error)
}

// touch is a job: it reads and writes in a way that loses a count if another does the same
// meanwhile.
func touch(c doer) error {
	r, err := c.do("GET", "job:done")
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(r.text)
	if _, err := c.do("INCR", "job:begun"); err != nil {
		return err
	}
	_, err = c.do("SET", "job:done", strconv.Itoa(n+1))
	return err
}

func (j *seed) check(b *bench) error {
	r, err := b.monitor.do("GET", "job:done")
	if err == nil && r.text != strconv.Itoa(j.jobs) {
		err = fmt.Errorf("of %d jobs %s were counted", j.jobs, r.text)
		return errors.Join(err, errors.New("two had the lock at once: report it with this run's "+
			"command"))
	}
	return err
}

func (j *seed) sections() []*section {
	s := &section{
		title: fmt.Sprintf("%d jobs shared by %d clients", j.jobs, j.clients),
		before: "The work of each job, under one lock, is GET, INCR, SET on the client's own " +
			"connection. A release is timed from the sending of the UNLOCK, DEL or EVAL " +
			"until its reply. Commands (those that scripts call as well) include the three of " +
			"the work. All by the light client. The longest wait is " +
			"what a timeout on the lock would have to allow.",
		header: []string{"", "jobs/s", "release ms, mean", "longest", "Redis commands/job",
			"Redis CPU µs/job", "wait ms, mean", "longest", "violations"},
	}
	for i, c := range j.contenders {
		rounds := j.results[i]
		violations := 0
		for _, o := range rounds {
			violations += o.violations
		}
		s.row(c.name,
			spread(rounds, "%.0f", (*outcome).rate),
			middle(rounds, "%.2f", func(o *outcome) float64 { return ms(o.releases().mean()) }),
			middle(rounds, "%.1f", func(o *outcome) float64 { return ms(o.releases().longest()) }),
			middle(rounds, "%.1f", (*outcome).commands),
			middle(rounds, "%.0f", (*outcome).cpu),
			middle(rounds, "%.1f", (*outcome).meanWait),
			middle(rounds, "%.0f", (*outcome).longestWait),
			fmt.Sprint(violations))
	}
	return []*section{s}
}
