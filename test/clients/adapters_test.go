//go:build clients

package clients_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// adapterPrograms use the files of examples/adapters with the libraries that they adapt.
var adapterPrograms = []clientProgram{
	{name: "redis-py", run: []string{"/usr/bin/python3", "redis_py.py"}},
	{name: "django-redis", run: []string{"/usr/bin/python3", "django_cache.py"}},
	{name: "symfony", run: []string{"/usr/bin/php", "symfony.php"}},
	{name: "laravel", run: []string{"/usr/bin/php", "laravel.php"},
		protocols: []string{"phpredis", "predis"}},
}

func TestAdapters(t *testing.T) {
	t.Parallel()
	bin := proxytest.Binary(t)
	for _, c := range adapterPrograms {
		c.dir = "adapters"
		variants := c.protocols
		if variants == nil {
			variants = []string{""}
		}
		for _, variant := range variants {
			t.Run(c.name+"/"+variant, func(t *testing.T) {
				t.Parallel() // they mostly wait
				port := strconv.Itoa(testredis.FreePort(t))
				startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream",
					testredis.Start(t).URL())
				args := []string{"127.0.0.1", port, variant}
				if variant == "" {
					args = args[:2]
				}
				words := slices.Concat(c.run, args)
				if printed := c.command(t, time.Minute, "", words); printed != "ok\n" {
					t.Errorf("it prints:\n%s", printed)
				}
				// These locks have a timeout: it ends them.
				c.testKilled(t, "", "127.0.0.1:"+port, append(args, "hold", "adapter:killed"), 3)
			})
		}
	}
}
