package upstream

// The Sentinels of a group are asked here. See sentinel.go for what follows from their answers.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

const (
	// sentinelPoll is how often each Sentinel is asked, apart from when it reports a change, and
	// how often the master is asked whether it still is one.
	sentinelPoll = time.Second
	// sentinelTimeout bounds one question.
	sentinelTimeout = time.Second
	// sentinelRetry is the pause before a Sentinel that has failed is asked again.
	sentinelRetry = 300 * time.Millisecond
)

// switchChannel is where a Sentinel tells that a group has another master.
const switchChannel = "+switch-master"

// SetSentinelLogin sets the login for the Sentinels; a user of "" is the default user. It must be
// called before Follow. ok is false if this upstream has no Sentinels.
func (u *Upstream) SetSentinelLogin(user, password string) (ok bool) {
	if u.sentinels != nil {
		u.secrets.sentinelUser, u.secrets.sentinelSecret = user, password
	}
	return u.sentinels != nil
}

// Follow keeps track of the master until ctx ends; connections to one that has been replaced are
// closed. replaced is called before the first connection to each new master, but not for the one
// that was found at first. Of a cluster Follow keeps track of which node serves which slots. For an
// upstream at a fixed address it returns at once.
func (u *Upstream) Follow(ctx context.Context, log hclog.Logger, replaced func()) {
	loopguard.MayWait()
	if u.cluster != nil {
		u.followCluster(ctx, log, replaced)
		return
	}
	if u.sentinels == nil {
		return
	}
	f := &follower{upstream: u, log: log, replaced: replaced}
	var goroutines sync.WaitGroup
	for _, addr := range u.sentinels.addrs {
		goroutines.Go(func() { f.watchSentinel(ctx, addr) }) // ends with ctx
	}
	goroutines.Go(func() { f.watchRole(ctx) }) // ends with ctx
	goroutines.Wait()
}

// follower is one run of Follow.
type follower struct {
	upstream *Upstream
	log      hclog.Logger
	replaced func()
}

// watchSentinel asks one Sentinel until ctx ends.
func (f *follower) watchSentinel(ctx context.Context, addr string) {
	silent := false // and that has been logged
	for ctx.Err() == nil {
		err := f.listen(ctx, addr, func() {
			if silent {
				f.log.Info("a Sentinel answers again", "sentinel", addr)
			}
			silent = false
		})
		if ctx.Err() == nil && !silent {
			silent = true
			what := "a Sentinel does not answer: the proxy asks the others"
			if _, said := errors.AsType[refusedGroup](err); said {
				what = "a Sentinel names no master: check the name of the group in --upstream"
			}
			f.log.Warn(what, "sentinel", addr, "error", err)
		}
		f.upstream.sentinels.recordFailure(addr, err)
		sleep(ctx, sentinelRetry)
	}
}

// listen asks a Sentinel at once, whenever it reports another master, and every sentinelPoll, until
// that fails.
func (f *follower) listen(ctx context.Context, addr string, answered func()) error {
	loopguard.MayWait()
	conn, err := f.upstream.dialSentinel(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := f.query(conn, addr); err != nil {
		return err
	}
	answered()
	news, err := f.upstream.dialSentinel(ctx, addr)
	if err != nil {
		return err
	}
	news.Write(resp.AppendCommand(nil, "SUBSCRIBE", switchChannel)) // an error is the reader's
	switched := make(chan struct{}, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer news.Close()
	reading.Go(func() { // ends with news
		defer close(switched)
		for {
			if _, _, err := resp.ReadReply(news, maxSetupReply); err != nil {
				return
			}
			select {
			case switched <- struct{}{}:
			default:
			}
		}
	})
	tick := time.NewTicker(sentinelPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-switched:
			if !open {
				return errors.New("its connection has ended")
			}
		case <-tick.C:
		}
		if err := f.query(conn, addr); err != nil {
			return err
		}
	}
}

// query asks a Sentinel for the master, and records the answer.
func (f *follower) query(conn net.Conn, sentinel string) error {
	s := f.upstream.sentinels
	conn.SetDeadline(time.Now().Add(sentinelTimeout))
	// The epoch comes first: an address that is newer than its epoch is corrected by the next
	// query, but one that is older would be taken for newer.
	replies, err := roundTrip(conn, []string{"SENTINEL", "MASTER", s.group},
		[]string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.group})
	if err != nil {
		return err
	}
	if replies[0].IsError() {
		return refusedGroup{s.group, replies[0].said()}
	}
	v, err := readVote(replies[0].raw, replies[1].raw)
	if err != nil {
		return fmt.Errorf("it names no address, or no config-epoch, of the group %s: %w", s.group,
			err)
	}
	s.record(sentinel, v, f.onSwitch)
	return nil
}

// refusedGroup is a Sentinel's error reply to the question for a group's master.
type refusedGroup struct{ group, line string }

func (e refusedGroup) Error() string {
	return fmt.Sprintf("SENTINEL MASTER %s: %s; name Sentinels, and one of the groups that SENTINEL "+
		"MASTERS lists there", e.group, e.line)
}

// readVote reads the answers to SENTINEL MASTER and SENTINEL GET-MASTER-ADDR-BY-NAME.
func readVote(master, addr []byte) (v vote, err error) {
	facts, err := resp.ParseValue(master)
	if err != nil {
		return v, err
	}
	epoch := ""
	for i := 0; i+1 < len(facts.Elems); i += 2 {
		if string(facts.Elems[i].Text) == "config-epoch" {
			epoch = string(facts.Elems[i+1].Text)
		}
	}
	if v.epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
		return v, err
	}
	pair, err := resp.ParseValue(addr)
	if err != nil || len(pair.Elems) != 2 {
		return v, cmp.Or(err, errors.New("it is not a pair of host and port"))
	}
	addrs, err := parseAddrs(net.JoinHostPort(string(pair.Elems[0].Text),
		string(pair.Elems[1].Text)), "")
	if err != nil {
		return v, err
	}
	v.addr = addrs[0]
	return v, nil
}

// onSwitch reports a new master; old is "" for the first.
func (f *follower) onSwitch(old, master string) {
	if old == "" {
		f.log.Info("the Sentinels name the master",
			"upstream", f.upstream.sentinels, "master", master)
		return
	}
	f.replaced()
	f.log.Warn("the master was replaced: connections to the old one are closed",
		"upstream", f.upstream.sentinels, "old", old, "master", master)
}

// watchRole finds out if the master becomes a replica without the Sentinels' knowledge, as when an
// operator does it by hand.
func (f *follower) watchRole(ctx context.Context) {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, sentinelTimeout)
		nc, err := f.upstream.Dial(once, Setup{Identity: f.upstream.Initial})
		cancel()
		var failed *Error
		switch {
		case err == nil:
			nc.Close()
		case errors.Is(err, errNotMaster) && errors.As(err, &failed):
			f.upstream.sentinels.closeConns(failed.Addr)
		}
		sleep(ctx, sentinelPoll)
	}
}

// dialSentinel makes a connection to a Sentinel, as one to a server is made.
func (u *Upstream) dialSentinel(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	user, password := u.sentinelLogin()
	sentinel := &Upstream{Network: "tcp", LossBound: u.LossBound}
	sentinel.SetTLS(u.TLS())
	id := Identity{User: user, Password: password, LoggedIn: user+password != ""}
	conn, err := sentinel.dialServer(ctx, addr, id.Login())
	if _, refused := errors.AsType[*Refused](err); refused {
		u.askAgain(nil) // for the next try
	}
	return conn, err
}

func sleep(ctx context.Context, d time.Duration) {
	loopguard.MayWait()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
