package lockcmd

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/testredis"
)

// What a pair of LOCK and UNLOCK costs the upstream in processor time: run with -bench Scripts.
func BenchmarkScripts(b *testing.B) {
	server := testredis.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()
	for _, script := range []*Script{lockScript, unlockScript} {
		if err := client.ScriptLoad(ctx, script.Source).Err(); err != nil {
			b.Fatal(err)
		}
	}
	l := &Locks{cfg: Config{FenceRetention: 10 * time.Minute}, retention: "600000"}
	const keys = 50
	before := cpuMicros(client)
	pairs := 0
	for b.Loop() {
		pipe := client.Pipeline()
		for i := range keys {
			key := fmt.Sprintf("job%d", i)
			r := lockRequest{key: key, timeout: 30 * time.Second, connection: fmt.Sprintf("0123456789abcdef-%d", i), number: strconv.Itoa(pairs), client: "127.0.0.1:12345"}
			lock, unlock := l.fastLock(r, modeTry), l.fastUnlock(proof{"connection", r.connection}, handOver{kind: "none"})
			companion := RecordKey([]byte(key))
			pipe.EvalSha(ctx, lockScript.SHA, []string{key, companion}, strings.Join([]string{"30000", "ms", "600000", "2000", r.connection, r.number, r.client, "0", "p", modeTry, "0", "0"}, " "), "", lock[0], lock[1], lock[2])
			pipe.EvalSha(ctx, unlockScript.SHA, []string{key, companion}, "connection "+r.connection+" 600000 p none 0 ms - - - 0 100 0 - 0", "", unlock[0], unlock[1], unlock[2])
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for _, cmd := range cmds {
			if n, ok := cmd.(*redis.Cmd).Val().(int64); !ok || n == 0 { // the short ways answer with a number
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
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys)_main_thread:([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		sum += seconds * 1e6
	}
	return sum
}
