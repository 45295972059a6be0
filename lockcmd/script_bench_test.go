package lockcmd

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd/script"
)

// What a pair of LOCK and UNLOCK costs the upstream in processor time: run with -bench Scripts.
func BenchmarkScripts(b *testing.B) {
	server := testredis.Start(b)
	client := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr()}))
	defer client.Close()
	ctx := context.Background()
	for _, script := range []*script.Script{script.LockScript, script.UnlockScript} {
		if err := client.ScriptLoad(ctx, script.Source).Err(); err != nil {
			b.Fatal(err)
		}
	}
	connect := func(names.Identity) *redis.Client { return nil }
	l := New(Config{FenceRetention: 10 * time.Minute}, "p", connect, hclog.NewNullLogger())
	defer l.Close()
	const keys = 50
	before := cpuMicros(client)
	pairs := 0
	for b.Loop() {
		pipe := client.Pipeline()
		for i := range keys {
			r := script.Request{
				Key: fmt.Sprintf("job%d", i), Number: strconv.Itoa(pairs),
				Timeout: 30 * time.Second, Client: "127.0.0.1:12345",
				Connection: fmt.Sprintf("0123456789abcdef-%d", i),
			}
			id := names.Lock{Key: r.Key}
			lock, err := l.beginTry(id.DB, lockRequests{r}, trial{mode: script.ModeTry})
			if err != nil {
				b.Fatal(err)
			}
			unlock := l.beginRelease(nil, id, names.Identity{}, script.Proof{Kind: "connection", Value: r.Connection}, true)
			for _, c := range []*script.Call{&lock.Call, &unlock.Call} {
				var words []any
				for _, word := range c.AppendWords(nil, false) {
					words = append(words, word)
				}
				pipe.Do(ctx, words...)
			}
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for _, cmd := range cmds {
			if n, ok := cmd.(*redis.Cmd).Val().(int64); !ok || n == 0 { // not by a fast path
				b.Fatalf("%v: %v", cmd.Args()[:5], cmd.(*redis.Cmd).Val())
			}
		}
		pairs++
	}
	b.ReportMetric((cpuMicros(client)-before)/float64(pairs*keys), "redis-cpu-µs/pair")
}

// cpuMicros is the processor time that the server's main thread has used.
func cpuMicros(client *redis.Client) (sum float64) {
	info := client.Info(context.Background(), "cpu").Val()
	times := regexp.MustCompile(`used_cpu_(?:user|sys)_main_thread:([0-9.]+)`)
	for _, m := range times.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		sum += seconds * 1e6
	}
	return sum
}
