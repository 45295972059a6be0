package testredis

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// installed is what the server that the tests run with says of itself.
var installed = sync.OnceValue(func() (is struct {
	version [2]int
	valkey  bool
}) {
	out, _ := exec.Command("redis-server", "--version").Output()
	is.valkey = strings.HasPrefix(string(out), "Valkey")
	found := regexp.MustCompile(` v=(\d+)\.(\d+)`).FindSubmatch(out)
	for i := range is.version {
		if found != nil {
			is.version[i], _ = strconv.Atoi(string(found[i+1]))
		}
	}
	return is
})

// IsValkey reports whether the server that the tests run with is Valkey.
func IsValkey() bool { return installed().valkey }

// Since reports whether the server that the tests run with is of this version or a later one. Each
// Valkey is later than Redis 7.2, of which it was made. Most tests have no need for this: they
// compare with what the server says.
func Since(major, minor int) bool {
	is := installed().version
	return is[0] > major || is[0] == major && is[1] >= minor
}

// EndsUnreadTLS reports whether the server that the tests run with closes a connection by TLS because
// its client leaves megabytes of replies unread: the next piece that it writes can be shorter than
// the one that it could not write, which OpenSSL refuses ("bad length"). Redis does so since 7.0;
// Valkey 8.1 has mended it.
func EndsUnreadTLS() bool { return Since(7, 0) && !(IsValkey() && Since(8, 1)) }
