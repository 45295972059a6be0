package main

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
)

// lockShared is about what has several holders, several keys, or several owners that wait.
func lockShared() {
	shared()
	limit()
	lockAll()
	deadlock()
}

// token is what LOCK or LOCKALL answers, 0 if it is null.
func token(client *redis.Client, command ...any) int64 {
	n, err := client.Do(ctx, command...).Int64()
	if err != nil && err != redis.Nil {
		log.Fatalf("FAIL %v: %v", command, err)
	}
	return n
}

func shared() {
	key := prefix + "shared"
	tokens := []int64{
		token(rdb, "LOCK", key, 600, "SHARED"), token(other, "LOCK", key, 600, "SHARED"),
	}
	check("LOCK next to SHARED", token(rdb, "LOCK", key, 600), int64(0))
	holders, err := rdb.Do(ctx, "LOCKINFO", key, "HOLDERS").Slice()
	check("HOLDERS", err, nil)
	check("HOLDERS", len(holders), 2)
	for i, h := range holders { // the latest first
		if m, ok := h.(map[any]any); ok { // RESP3
			check("HOLDERS", m["token"], tokens[1-i])
		} else {
			check("HOLDERS", h.([]any)[1], tokens[1-i])
		}
	}
	fmt.Println("holds", key, tokens[0], tokens[1])
}

func limit() {
	key := prefix + "limit"
	check("LIMIT 2", token(rdb, "LOCK", key, 600, "LIMIT", 2) > 0, true)
	check("LIMIT 2, the second", token(other, "LOCK", key, 600, "LIMIT", 2) > 0, true)
	check("LIMIT 2, the third", token(rdb, "LOCK", key, 600, "LIMIT", 2), int64(0))
	check("LIMIT 3", token(rdb, "LOCK", key, 600, "LIMIT", 3) > 0, true)
	check("UNLOCK of all", rdb.Do(ctx, "UNLOCK", key, "FORCE").Val(), int64(1))
}

func lockAll() {
	one, two := prefix+"{all}1", prefix+"{all}2"
	both := token(rdb, "LOCKALL", 600, 2, one, two)
	check("LOCKALL", both > 0, true)
	check("LOCKALL of one that is held", token(other, "LOCKALL", 600, 1, two), int64(0))
	check("UNLOCKALL", rdb.Do(ctx, "UNLOCKALL", both, 2, one, two).Val(), int64(2))
}

func deadlock() {
	anna, ben := prefix+"anna", prefix+"ben"
	annas := token(rdb, "LOCK", anna, 600, "OWNER", "anna")
	bens := token(other, "LOCK", ben, 600, "OWNER", "ben")
	granted := make(chan int64)
	go func() { granted <- token(other, "LOCK", anna, 600, "WAIT", 60, "OWNER", "ben") }()
	for len(rdb.Do(ctx, "LOCKINFO", anna, "WAITERS").Val().([]any)) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	err := rdb.Do(ctx, "LOCK", ben, 600, "WAIT", 60, "OWNER", "anna").Err()
	var replied redis.Error
	check("DEADLOCK is a redis.Error", errors.As(err, &replied), true)
	fmt.Println("refused", err)
	check("UNLOCK of what ben waits for", rdb.Do(ctx, "UNLOCK", anna, annas).Val(), int64(1))
	check("UNLOCK by ben", other.Do(ctx, "UNLOCK", anna, <-granted).Val(), int64(1))
	check("UNLOCK by ben", other.Do(ctx, "UNLOCK", ben, bens).Val(), int64(1))
}
