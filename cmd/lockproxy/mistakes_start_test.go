package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

// What an operator has got wrong on the command line, in the environment, in a file or about this
// machine ends the start with one line, which says what is wrong and what is wanted.
func TestMistakesAtTheStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty": "\n", "no.pem": "text", "word.toml": "upstrem = \"redis://h\"\n",
		"bare.toml": "upstream = redis://h\n", "twice.toml": "park = \"1s\"\npark = \"2s\"\n",
		"line.toml": "max_clients = 5\n", "other.toml": "speed = 5\n",
		"table.toml": "[server]\nmax-clients = 5\n",
		"value.toml": "max-clients = \"many\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	const (
		help     = "; see lockproxy --help"
		forms    = "redis://[user:pass@]host:port[/db]"
		unusable = "--upstream: not a usable redis URL (it is not shown here since it may hold a " +
			"password): "
		asPercent = ": want " + forms +
			", with # % / ? @ and the like in a password written as %23 %25 %2F %3F %40"
	)
	for _, c := range []struct{ line, want string }{
		{"--upsteam redis://h", `unknown flag --upsteam, did you mean "--upstream"?` + help},
		{"-upstream redis://h", "unknown flag -upstream, did you mean --upstream?" + help},
		{"-u redis://h", "unknown flag -u" + help},
		{"redis://h", "unexpected argument redis://h, did you mean --upstream=redis://h?" + help},
		{"redis://:pw@h", "unexpected argument redis://(hidden)@h, did you mean " +
			"--upstream=redis://(hidden)@h?" + help},
		{"h:6379", "unexpected argument h:6379, did you mean --upstream=redis://h:6379?" + help},
		{"chekc", `unexpected argument chekc, did you mean "check"?` + help},
		{"halp", `unexpected argument halp, did you mean "help"?` + help},
		{"entirely", "unexpected argument entirely" + help},
		{"--min-replicas -1", "--min-replicas: want a number from 0 to 1000, not \"-1\"" + help},
		{"--max-timeout -5s", "--max-timeout: want a time from 1ms to 87600h, as in 90s or 1h30m, " +
			`not "-5s"` + help},
		{"--max-clients --embedded", "--max-clients: the value is missing: write --max-clients=N" +
			help},
		{"--upstream", "--upstream: the value is missing: write --upstream=URL" + help},
		{"--upstream=", "--upstream: the value is empty: give one, or leave the setting out" + help},
		{"--upstream 127.0.0.1:6379", "--upstream: the URL has no scheme: want " +
			forms},
		{"--upstream http://h", `--upstream: scheme "http" is not known: want redis, rediss, unix, ` +
			"redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster"},
		{"--upstream redis+sentinel://h", "--upstream: the redis+sentinel URL names no group: want " +
			"redis+sentinel://[user:pass@]host:port,host:port/group[/db][?sentinel_user=…&" +
			"sentinel_password=…]"},
		{"--upstream redis+cluster://h/3", "--upstream: a cluster has no database but 0: want " +
			"redis+cluster://[user:pass@]host:port,host:port"},
		{"--upstream redis://:p#s@h", unusable + "the text is not a URL" + asPercent},
		{"--upstream redis://h:99999", unusable + "the addresses are not host:port,host:port with " +
			"ports from 1 to 65535" + asPercent},
		{"--upstream-file DIR/none", "--upstream-file: open DIR/none: no such file or directory"},
		{"--upstream-file DIR/empty", "--upstream-file: the file DIR/empty is empty"},
		{"--upstream redis://h --upstream-file DIR/empty",
			"--upstream and --upstream-file: leave one of the two out"},
		{"--max-timeout 5", "--max-timeout: want a time from 1ms to 87600h, as in 90s or 1h30m, " +
			`not "5"` + help},
		{"--log-level loud", `--log-level must be one of "trace","debug","info","warn","error",` +
			`"off" but got "loud"` + help},
		{"--listen 6380", "--listen 6380: want host:port with a port up to 65535, as in " +
			"127.0.0.1:6380, or unix:///path, or systemd"},
		{"--listen 0.0.0.0:0", "--listen 0.0.0.0:0 is open to other machines: name a Redis with " +
			"--upstream redis://host:port, or serve the in-memory store with --embedded, for trying " +
			"out"},
		{"--tls-cert x", "--tls-cert and --tls-key belong together: give both"},
		{"--upstream redis://h --upstream-tls-ca x",
			"--upstream-tls-ca is for TLS: write --upstream as rediss://"},
		{"--listen-mode 0770", "--listen-mode changes nothing without --listen unix:///path: give " +
			"both, or leave it out"},
		{"--handover-unchecked", "--handover-unchecked changes nothing without --handover: give " +
			"both, or leave it out"},
		{"--park-keys job:*", "--park-keys changes nothing without --park: give both, or leave it " +
			"out"},
		{"--upstream redis://h --cluster-announce h:1", "--cluster-announce changes nothing without " +
			"--upstream redis+cluster://host:port: give both, or leave it out"},
		{"--upstream redis://h --replica-timeout 2s", "--replica-timeout changes nothing without " +
			"--min-replicas or --require-fsync: give both, or leave it out"},
		{"LOCKPROXY_UPSTEAM=x", "unknown environment variable LOCKPROXY_UPSTEAM, did you mean " +
			`"LOCKPROXY_UPSTREAM"?` + help},
		{"LOCKPROXY_MAX_CLIENT=5", "unknown environment variable LOCKPROXY_MAX_CLIENT, did you mean " +
			`"LOCKPROXY_MAX_CLIENTS"?` + help},
		{"LOCKPROXY_SOMETHING=x", "unknown environment variable LOCKPROXY_SOMETHING: want " +
			"LOCKPROXY_ and the name of a flag, as in LOCKPROXY_MAX_CLIENTS" + help},
		{"LOCKPROXY_MAX_CLIENTS=many", "--max-clients: want a number from 1 to 2147483647, not " +
			`"many" (from LOCKPROXY_MAX_CLIENTS="many")` + help},
		{"--config DIR/none", "--config: open DIR/none: no such file or directory" + help},
		{"--config DIR/word.toml", `--config DIR/word.toml: unknown setting "upstrem", did you ` +
			`mean "upstream"?` + help},
		{"--config DIR/line.toml", `--config DIR/line.toml: unknown setting "max_clients", did you ` +
			`mean "max-clients"?` + help},
		{"--config DIR/other.toml", `--config DIR/other.toml: unknown setting "speed": want the ` +
			"name of a flag, without dashes before it, as in max-clients" + help},
		{"--config DIR/table.toml", `--config DIR/table.toml: unknown setting "server": the file ` +
			"can have no tables: want lines such as max-clients = 100" + help},
		{"--config DIR/bare.toml", "--config DIR/bare.toml: line 1 is not TOML: want name = 5, " +
			`name = "text" or name = true` + help},
		{"--config DIR/twice.toml", "--config DIR/twice.toml: line 2 sets what an earlier line has " +
			"set: leave one of the two out" + help},
		{"--config DIR/value.toml", "--config DIR/value.toml: --max-clients: want a number from 1 " +
			`to 2147483647, not "many"` + help},
		{"--listen TAKEN", "cannot listen on TAKEN, choose another --listen: bind: address already " +
			"in use"},
		{"--listen 192.0.2.77:0 --embedded", "cannot listen on 192.0.2.77:0, choose another " +
			"--listen: bind: cannot assign requested address"},
		{"--listen unix:///nowhere/s", "cannot listen on unix:///nowhere/s, choose another " +
			"--listen: open /nowhere: no such file or directory"},
		{"--listen unix:///proc/s", "cannot listen on unix:///proc/s, choose another --listen: " +
			"bind: no such file or directory"},
		{"--admin TAKEN", "cannot listen on TAKEN, choose another --admin: bind: address already " +
			"in use"},
		{"--upstream redis://h --handover /nowhere/s", "cannot wait for a successor at " +
			"--handover /nowhere/s: bind: no such file or directory"},
		{"--tls-cert DIR/no.pem --tls-key DIR/no.pem", "cannot use the TLS files: --tls-cert " +
			"DIR/no.pem with --tls-key DIR/no.pem: tls: failed to find any PEM data in certificate " +
			"input"},
		{"--upstream rediss://h --upstream-tls-ca DIR/no.pem", "cannot use the TLS files: " +
			"--upstream-tls-ca DIR/no.pem: the file holds no certificate: want PEM"},
		{"--listen FREE --upstream redis://FREE", errItself.Error()},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			places := strings.NewReplacer("DIR", dir, "TAKEN", taken.Addr().String(), "FREE", free)
			var env, args []string
			for _, word := range strings.Fields(places.Replace(c.line)) {
				if strings.HasPrefix(word, "LOCKPROXY_") {
					env = append(env, word)
				} else {
					args = append(args, word)
				}
			}
			if !strings.Contains(c.line, "--listen") {
				args = append([]string{"--listen", "127.0.0.1:0"}, args...)
			}
			var status int
			var said string
			if env == nil {
				status, said = runHere(t, args...)
			} else {
				p := spawn(t, env, args...)
				status, said = p.status(), p.said()
			}
			said = strings.TrimSuffix(said, "\n")
			want, wantStatus := places.Replace(c.want), exitUsage
			_, logged, isLog := strings.Cut(said, "[ERROR] lockproxy: stopped: error=")
			if isLog {
				said, wantStatus = strings.Trim(logged, `"`), exitFailure
			} else {
				want = "lockproxy: " + want
			}
			if said != want || status != wantStatus {
				t.Errorf("status %d, and it says\n%s, not\n%s", status, said, want)
			}
		})
	}
}
