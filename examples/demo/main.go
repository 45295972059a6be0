// Command demo shows how each of six published locks on plain Redis comes to be held twice: the
// steps of the recipe, in an order in which clients may well take them, against a real Redis. It
// ends with status 0 if the lock was held twice.
//
//	demo [--redis HOST:PORT] nx|l1|l2|l3|l4|l5
//
// The clients' clocks are part of each recipe but the first; here they start at 1700000000 and go on when the
// story says so, so that it is always the same. Decisions are made from what Redis answers, as the
// recipe makes them. See docs/tutorial.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// story is one recipe's way to be held twice.
type story struct {
	title string
	tell  func(s *scene)
}

var stories = map[string]story{
	"nx": {"SET NX PX, and a release that compares: its holder is paused", tellNX},
	"l1": {"L1, SETNX and GETSET: the loser of a race replaces the winner's time", tellL1},
	"l2": {
		"L2, the same in one loop: between the look at the clock and DEL somebody else has come",
		tellL2,
	},
	"l3": {"L3, in milliseconds: the work takes longer than was guessed", tellL3},
	"l4": {"L4, in two scripts: the release doesn't ask whose lock it is", tellL4},
	"l5": {"L5, with a proof of ownership: a clock is wrong", tellL5},
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "the Redis to lock in")
	flag.Parse()
	told, ok := stories[flag.Arg(0)]
	if !ok || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: demo [--redis HOST:PORT] nx|l1|l2|l3|l4|l5")
		os.Exit(2)
	}
	rdb := redis.NewClient(&redis.Options{Addr: *addr, Protocol: 2, DisableIdentity: true})
	defer rdb.Close()
	s := &scene{rdb: rdb, key: "demo:" + flag.Arg(0), now: 1_700_000_000}
	rdb.Del(context.Background(), s.key)
	defer rdb.Del(context.Background(), s.key)
	fmt.Println(told.title)
	told.tell(s)
	if len(s.holders) < 2 {
		fmt.Println("held once: the recipe was right this time")
		os.Exit(1)
	}
	fmt.Println("HELD TWICE: by", strings.Join(s.holders, " and "))
}

// scene is what the clients share: a Redis, a lock, and what the time really is, Unix seconds.
type scene struct {
	rdb     *redis.Client
	key     string
	now     int64
	holders []string // who works under the lock
}

// do sends one client's command about the lock, and returns and prints the answer.
func (s *scene) do(who, command string, args ...any) string {
	shown := command
	for _, arg := range args {
		shown += fmt.Sprint(" ", arg)
	}
	return s.answer(who, shown, append([]any{command, s.key}, args...))
}

// eval runs one of a recipe's scripts for a client.
func (s *scene) eval(who, name, script string, args ...any) string {
	line := fmt.Sprintln(append([]any{""}, args...)...)
	shown := fmt.Sprintf("EVAL %s%s", name, strings.TrimSuffix(line, "\n"))
	return s.answer(who, shown, append([]any{"EVAL", script, 1, s.key}, args...))
}

func (s *scene) answer(who, shown string, request []any) string {
	got, err := s.rdb.Do(context.Background(), request...).Result()
	answer := fmt.Sprint(got)
	switch {
	case err == redis.Nil:
		answer = "(nil)"
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	fmt.Printf("  %s  %-28s %s\n", who, shown, answer)
	return answer
}

// say tells what a client makes of it.
func (s *scene) say(who, text string) { fmt.Printf("  %s  - %s\n", who, text) }

// holds lets a client begin to work under the lock.
func (s *scene) holds(who string) {
	s.say(who, "holds the lock")
	s.holders = append(s.holders, who)
}

// ends lets a client end its work.
func (s *scene) ends(who string) {
	for i, holder := range s.holders {
		if holder == who {
			s.holders = append(s.holders[:i], s.holders[i+1:]...)
			return
		}
	}
}

// later lets time go on.
func (s *scene) later(seconds int64, why string) {
	s.now += seconds
	fmt.Printf("     (%d s later: %s)\n", seconds, why)
}
