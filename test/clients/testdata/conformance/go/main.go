// Does what it is told with the Go module: see features in conformance_test.go. With "own" among the
// arguments it shows what only the Go module has.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	_ "github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	lockproxy "lockproxy/clients/go"
)

var (
	errMine = errors.New("mine")
	in      = bufio.NewReader(os.Stdin)
	rdb     *redis.Client
)

func told() []string {
	line, _ := in.ReadString('\n')
	return strings.Fields(line)
}

func main() {
	o := &redis.Options{Addr: net.JoinHostPort(os.Args[1], os.Args[2]), MaxRetries: -1,
		Username: os.Getenv("USERNAME"), Password: os.Getenv("PASSWORD")}
	if file := os.Getenv("CA"); file != "" {
		text, _ := os.ReadFile(file)
		o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: os.Args[1]}
		o.TLSConfig.RootCAs.AppendCertsFromPEM(text)
	}
	rdb = redis.NewClient(o)
	if len(os.Args) > 3 {
		own()
		return
	}
	for {
		words := told()
		if len(words) == 0 {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		err := map[string]func(context.Context, func(), string, ...string) error{
			"lock": lock, "once": once}[words[0]](ctx, cancel, words[1], words[2:]...)
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, lockproxy.ErrLost):
			fmt.Println("lost")
		case errors.Is(err, errMine):
			fmt.Println("raised")
		case errors.Is(err, lockproxy.ErrNotAcquired):
			fmt.Println("refused")
		case errors.Is(err, context.Canceled):
			fmt.Println("cancelled")
		default:
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
}

func parse(words []string) map[string]time.Duration {
	given := map[string]time.Duration{}
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			given[name], _ = time.ParseDuration(value + "s")
		}
	}
	return given
}

func lock(ctx context.Context, cancel func(), key string, words ...string) error {
	given := parse(words)
	do := lockproxy.TryDo
	if _, waits := given["wait"]; waits {
		do = lockproxy.Do
	}
	if words = words[max(len(words)-1, 0):]; len(words) > 0 && words[0] == "cancel" {
		go func() { told(); cancel() }() // ends with the line
	}
	err := do(ctx, rdb, key, lockproxy.Options{Timeout: given["timeout"], Wait: given["wait"],
		Max: given["max"]}, func(ctx context.Context, held *lockproxy.Held) error {
		fmt.Println("held", held.Token)
		for {
			words := told()
			var err error
			switch words[0] {
			case "leave":
				return nil
			case "raise":
				return errMine
			case "fence":
				var reply any
				args := make([]any, len(words)-1)
				for i := range args {
					args[i] = words[i+1]
				}
				if reply, err = held.Fence(context.Background(), args...).Result(); err == nil {
					fmt.Println("reply", reply)
				}
			case "sql", "begin":
				err = write(held, words[0] == "sql", words[1])
			case "commit":
				if err = tx.Commit(); err == nil {
					fmt.Println("written")
				}
			case "extend":
				if err = held.Extend(context.Background(), parse([]string{"t=" + words[1]})["t"]); err == nil {
					fmt.Println("extended")
				}
			default:
				tells(ctx, words[0])
			}
			if errors.Is(err, lockproxy.ErrLost) {
				fmt.Println("lost")
			} else if err != nil {
				fmt.Println("error", err)
			}
		}
	})
	if err == nil {
		fmt.Println("released")
	}
	return err
}

var tx *sql.Tx

// write inserts a value in a transaction that is fenced.
func write(held *lockproxy.Held, commit bool, value string) error {
	ctx := context.Background()
	db, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		return err
	}
	if tx, err = db.BeginTx(ctx, nil); err != nil {
		return err
	}
	if err = held.FenceSQL(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO writes VALUES ($1)", value); err != nil {
		return err
	}
	if !commit {
		fmt.Println("begun")
		return nil
	}
	if err = tx.Commit(); err == nil {
		fmt.Println("written")
	}
	return err
}

// tells says whether the lock is lost, or when.
func tells(ctx context.Context, word string) {
	if word == "await" {
		<-ctx.Done()
	}
	switch {
	case context.Cause(ctx) != lockproxy.ErrLost:
		fmt.Println("ok")
	case word == "await":
		fmt.Println("told")
	default:
		fmt.Println("lost")
	}
}

func once(ctx context.Context, _ func(), key string, words ...string) error {
	given := parse(words)
	once := lockproxy.TryOnce
	if _, waits := given["wait"]; waits {
		once = lockproxy.Once
	}
	ttl := given["ttl"]
	if ttl == 0 && strings.Contains(strings.Join(words, " "), "ttl=0") {
		ttl = time.Nanosecond // 0 is as if it were left out
	}
	value, err := once(ctx, rdb, key, lockproxy.OnceOptions{TTL: ttl, Early: given["early"],
		Wait: given["wait"], Timeout: given["timeout"]},
		func(ctx context.Context, claim lockproxy.Claim) (string, error) {
			fmt.Println("make", claim.Token)
			for {
				switch words := told(); words[0] {
				case "value":
					return words[1], nil
				case "raise":
					return "", errMine
				default:
					tells(ctx, words[0])
				}
			}
		})
	if err == nil {
		fmt.Println("value", value)
	}
	return err
}
