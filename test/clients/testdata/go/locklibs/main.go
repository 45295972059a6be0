// Command locklibs takes one lock again and again with a lock library, in the library's own way.
//
// usage: locklibs redislock|redsync|rueidislock HOST PORT KEY NAME
//
// It ends when there is a key KEY:end. It counts how often it had the lock at KEY:NAME, and how
// often another client had it at the same time at KEY:violations: each holder counts KEY:inside up
// and down.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const (
	lease = 10 * time.Minute // longer than any stop of the machine
	hold  = 2 * time.Millisecond
	// answers is how long a client waits for an answer.
	answers = 2 * time.Minute
	// patience is how long one try of rueidislock takes.
	patience = 2 * time.Second
)

// Locker takes a lock, waits for it if need be, and returns what releases it.
type Locker func(ctx context.Context, key string) (release func(), err error)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 6 {
		log.Fatal("usage: locklibs LIBRARY HOST PORT KEY NAME")
	}
	library, addr, key := os.Args[1], net.JoinHostPort(os.Args[2], os.Args[3]), os.Args[4]
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: answers, ReadTimeout: answers,
		WriteTimeout: answers})
	var lock Locker
	switch library {
	case "redislock":
		lock = redislockLocker(rdb)
	case "redsync":
		lock = redsyncLocker(rdb)
	case "rueidislock":
		lock = rueidislockLocker(addr)
	default:
		log.Fatalf("no library %q", library)
	}
	ctx := context.Background()
	for ended := int64(0); ended == 0; {
		release, err := lock(ctx, key)
		if err != nil {
			log.Fatalf("%s: %v", library, err)
		}
		inside, err := rdb.Incr(ctx, key+":inside").Result()
		if err != nil {
			log.Fatal(err)
		}
		if inside != 1 {
			rdb.Incr(ctx, key+":violations")
		}
		time.Sleep(hold)
		rdb.Decr(ctx, key+":inside")
		rdb.Incr(ctx, key+":"+os.Args[5])
		release()
		if ended, err = rdb.Exists(ctx, key+":end").Result(); err != nil {
			log.Fatal(err)
		}
	}
}

func redislockLocker(rdb *redis.Client) Locker {
	client := redislock.New(rdb)
	retry := redislock.LinearBackoff(50 * time.Millisecond)
	return func(ctx context.Context, key string) (func(), error) {
		lock, err := client.Obtain(ctx, key, lease, &redislock.Options{RetryStrategy: retry})
		return func() { released(lock.Release(ctx)) }, err
	}
}

func redsyncLocker(rdb *redis.Client) Locker {
	client := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, key string) (func(), error) {
		mutex := client.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(1_000_000))
		err := mutex.LockContext(ctx)
		return func() {
			ok, err := mutex.UnlockContext(ctx)
			if err == nil && !ok {
				err = fmt.Errorf("it was not held")
			}
			released(err)
		}, err
	}
}

// rueidislockLocker takes the key "KEY" as rueidislock names it: with KeyPrefix job, job:0:KEY.
func rueidislockLocker(addr string) Locker {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ConnWriteTimeout: answers,
			Dialer: net.Dialer{Timeout: answers}},
		KeyPrefix: "job", KeyMajority: 1, KeyValidity: lease, TryNextAfter: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	return func(ctx context.Context, key string) (func(), error) {
		for {
			// It may miss a change of the key, also without lockproxy, and then waits forever.
			try, cancel := context.WithTimeout(ctx, patience)
			_, release, err := locker.WithContext(try, key)
			switch {
			case err == nil:
				return func() { release(); cancel() }, nil
			case ctx.Err() != nil || try.Err() == nil:
				cancel()
				return nil, err
			}
			cancel()
		}
	}
}

func released(err error) {
	if err != nil {
		log.Fatalf("not released: %v", err)
	}
}
