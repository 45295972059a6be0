package upstream

// How the Sentinels of a group are asked. See sentinel.go for what follows from their answers.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
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
		u.sentinels.user, u.sentinels.password = user, password
	}
	return u.sentinels != nil
}

// Follow keeps track of the master until ctx ends; connections to one that has been replaced are
// closed. replaced is called before the first connection to each new master, but not for the one
// that was found at first. Of a cluster Follow keeps track of which node serves which slots. For an
// upstream at a fixed address it returns at once.
func (u *Upstream) Follow(ctx context.Context, log hclog.Logger, replaced func()) {
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
	client := f.upstream.sentinelClient(addr)
	defer client.Close()
	silent := false // and that has been logged
	for ctx.Err() == nil {
		err := f.listen(ctx, client, addr, func() {
			if silent {
				f.log.Info("Sentinel answers again", "sentinel", addr)
			}
			silent = false
		})
		if ctx.Err() == nil && !silent {
			silent = true
			f.log.Warn("a Sentinel does not answer: the others are asked", "sentinel", addr,
				"error", err)
		}
		f.upstream.sentinels.recordFailure(addr, err)
		sleep(ctx, sentinelRetry)
	}
}

// listen asks a Sentinel at once, whenever it reports another master, and every sentinelPoll, until
// that fails.
func (f *follower) listen(
	ctx context.Context, client *redis.SentinelClient, addr string, answered func(),
) error {
	if err := f.query(ctx, client, addr); err != nil {
		return err
	}
	answered()
	sub := client.Subscribe(ctx, switchChannel)
	defer sub.Close()
	switched := sub.Channel()
	tick := time.NewTicker(sentinelPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-switched:
		case <-tick.C:
		}
		if err := f.query(ctx, client, addr); err != nil {
			return err
		}
	}
}

// query asks a Sentinel for the master, and records the answer.
func (f *follower) query(ctx context.Context, client *redis.SentinelClient, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	group := f.upstream.sentinels.group
	// The epoch comes first: an address that is newer than its epoch is corrected by the next
	// query, but one that is older would be taken for newer.
	facts, err := client.Master(ctx, group).Result()
	if err != nil {
		return fmt.Errorf("SENTINEL MASTER %s: %w", group, err)
	}
	master, err := client.GetMasterAddrByName(ctx, group).Result()
	if err != nil {
		return fmt.Errorf("SENTINEL GET-MASTER-ADDR-BY-NAME %s: %w", group, err)
	}
	epoch, err := strconv.ParseInt(facts["config-epoch"], 10, 64)
	if err != nil || len(master) != 2 {
		return fmt.Errorf("it gives no address, or no config-epoch, for the group %s", group)
	}
	v := vote{net.JoinHostPort(master[0], master[1]), epoch}
	f.upstream.sentinels.record(addr, v, f.onSwitch)
	return nil
}

// onSwitch reports a new master; old is "" for the first.
func (f *follower) onSwitch(old, master string) {
	if old == "" {
		f.log.Info("found the master", "upstream", f.upstream.sentinels, "master", master)
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

// sentinelClient returns a client of one Sentinel. Its connections are made like those to the
// servers.
func (u *Upstream) sentinelClient(addr string) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{
		Addr:                  addr,
		Username:              u.sentinels.user,
		Password:              u.sentinels.password,
		Protocol:              2,
		MaxRetries:            -1,
		DisableIdentity:       true,
		PoolSize:              2,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
			defer cancel()
			raw, err := u.connect(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			nc, err := u.secure(ctx, raw, addr)
			if err != nil {
				raw.Close()
			}
			return nc, err
		},
		DialerRetries:            1,
		MaintNotificationsConfig: noMaintNotifications,
	})
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
