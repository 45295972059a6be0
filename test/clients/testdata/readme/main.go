// The program of clients/go/README.md, and what it uses of the program around it.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "lockproxy/clients/go"
)

func build(_ context.Context, day int) (string, error) { return fmt.Sprint("report ", day), nil }

func main() {
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: "127.0.0.1:6380"})
	// the program of README.md
	if err != nil || body == "" {
		log.Fatal(err)
	}
}
