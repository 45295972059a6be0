package real_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
)

// scriptCalls is how many scripts the upstream has run, and how many commands in all.
func scriptCalls(t testing.TB, direct *redis.Client) (scripts, all int) {
	for line := range strings.SplitSeq(direct.Info(proxytest.Ctx, "commandstats").Val(), "\r\n") {
		name, rest, ok := strings.Cut(line, ":calls=")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(digits)
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval":
			scripts += n
		case "cmdstat_info", "cmdstat_config|resetstat":
			continue
		}
		all += n
	}
	return scripts, all
}
