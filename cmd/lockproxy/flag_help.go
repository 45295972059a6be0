package main

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// flagHelp is the help of each flag, by its name, where its tag has none.
var flagHelp = map[string]string{
	// Serving.
	"config": "Read settings from this file: TOML, with the names of flags, as in " +
		"max-clients = 5000. SIGHUP reads it again.",
	"listen": "Where clients connect: host:port, unix:///path for a Unix socket, or systemd for " +
		"that of a .socket unit (default ${default}). The host 0.0.0.0, or no host, stands for " +
		"all addresses, IPv6 too.",
	"listen-mode": "Permissions of the Unix socket, octal: a user that can write to it can " +
		"connect (default ${default}).",
	"proxy-protocol-from": "" +
		"Networks whose connections begin with a PROXY protocol header, version 1 or " +
		"2, such as a load balancer's. A connection without one is closed; " +
		"from any other address the header is treated as a command, which Redis does " +
		"not know.",
	"handshake-timeout": "How long a client's PROXY header and TLS handshake can take (default " +
		"${default}).",
	"shutdown-timeout": "How long to wait after SIGTERM or SIGINT until commands and " +
		"transactions have finished and locks are released (default ${default}).",
	"shutdown-delay": "How long to serve clients as before after SIGTERM or SIGINT, while " +
		"/readyz says no and balancers send new clients elsewhere (default ${default}).",
	"handover": "A Unix socket through which a new process takes over from a running one. " +
		"Start the new one with the same --listen and --handover: the running one " +
		"hands it the listening socket, finishes and ends, once the new one's upstream answers.",
	"handover-unchecked": "Take over from a running process by --handover also if the upstream " +
		"does not answer, or refuses the login.",
	"upstream": "The Redis to stand in front of: redis://[user:pass@]host:port[/db], " +
		"rediss:// for TLS, unix://[user:pass@]/path[?db=n], " +
		"redis+sentinel://[user:pass@]host:port,host:port/group[/db] " +
		"(rediss+sentinel:// for TLS) for the master that Sentinels name, or " +
		"redis+cluster://[user:pass@]host:port,host:port (rediss+cluster:// for TLS) " +
		"for a whole Redis Cluster: name one node or several. Clients start as " +
		"this user, in this database. Without it: an in-memory store, for trying out," +
		" on loopback only.",
	"upstream-file": "A file that holds the URL of --upstream, such as a mounted secret. " +
		"Its password is read again on SIGHUP, and when it is refused.",
	"embedded": "Serve the in-memory store to other machines too, for trying out: it keeps " +
		"nothing, and no other proxy knows of its locks.",
	"upstream-mode": "shared: plain requests of many clients share a few connections, and all " +
		"others use the client's own. dedicated: all use the client's own " +
		"(default ${default}).",
	"upstream-conns": "The most connections that the clients of one user, database and protocol " +
		"share (default ${default}).",
	"home-idle": "Take a client's own connection to Redis away when it was not needed for this " +
		"long and its state is that of a new one. The client gets another on demand. " +
		"0 means never (default ${default}).",
	"upstream-dial-timeout": "How long connecting and logging in to the upstream can take " +
		"(default ${default}).",
	"cluster-announce": "In front of a Redis Cluster: the address that clients which know Redis " +
		"Cluster are told to use (default: the one that each connected to).",
	"upstream-tls-ca": "The authorities that may have signed the certificate of a rediss:// " +
		"upstream, PEM (default: the system's).",
	"upstream-tls-cert": "The certificate to show to the upstream, PEM.",
	"upstream-tls-key":  "The key of --upstream-tls-cert, PEM.",
	"upstream-tls-server-name": "" +
		"The name that the upstream's certificate must have (default: the URL's host;" +
		" of a cluster or of what Sentinels name, each server's).",
	"tls-cert": "Serve clients with TLS: the certificate and its chain, PEM. SIGHUP reads all" +
		" of these files again; if one is bad, the earlier ones stay in use.",
	"tls-key": "The key of --tls-cert, PEM.",
	"tls-client-ca": "Let in only clients with a certificate that one of these authorities has " +
		"signed, PEM.",
	"max-clients": "The most clients at one time; further ones are refused (default ${default}). " +
		"Each can need two open files: with too few (LimitNOFILE, ulimit -n), fewer clients are " +
		"served.",
	"client-buffer": "The largest request that is held whole: a lock command, AUTH, HELLO, CLIENT or " +
		"COMMAND; others are streamed. Sizes are written as in redis.conf: 64kb, 1mb," +
		" 2gb (default ${default}).",
	"max-unread": "Room in temporary files for replies that slow clients have not read yet, of " +
		"all clients together. A client whose replies no longer fit is " +
		"disconnected, and the log says so (default ${default}).",
	"max-args": "The most arguments of one request (default ${default}, as in Redis).",
	"max-bulk": "The longest argument, as the upstream's proto-max-bulk-len (default " +
		"${default}).",
	"max-inline":  "The longest inline request (default ${default}, as in Redis).",
	"max-timeout": "The longest timeout that LOCK accepts (default ${default}).",
	"timestamp-unit": "Unit of the expiry time written at a lock's key: what the foreign clients " +
		"(SETNX) next to LOCK use (default ${default}).",
	"fence-retention": "How long a lock's last token is remembered after its end, so that tokens " +
		"rise even if the upstream's clock steps back (default ${default}).",
	"deadlock": "What to do when owners (OWNER) wait for each other's locks in a cycle. " +
		"refuse: answer DEADLOCK to the wait that began last. log: log and count it." +
		" off: do not look for cycles (default ${default}).",
	"park": "Let clients of other lock libraries wait in line: delay the nil of a " +
		"SET key value NX PX|EX by at most this long, for a lock that this proxy has " +
		"seen being taken. If the lock is released meanwhile, the first in line gets " +
		"it. 0 means no delay (default ${default}).",
	"park-keys":  "The keys that --park applies to, a pattern as for KEYS (default ${default}).",
	"log-level":  "trace, debug, info, warn, error or off (default ${default}).",
	"log-format": "One line of text, or of JSON, per event (default ${default}).",

	// Watching.
	"admin": "Serve /healthz, /readyz, /metrics and a live page at this host:port, with plain " +
		"HTTP. Anyone who reaches it sees the names of locks and their holders (default: none is " +
		"served).",
	"admin-token": "A password of at least 16 characters: with it people can log in on the live " +
		"page and release locks there. Prefer LOCKPROXY_ADMIN_TOKEN (default: " +
		"nobody can).",
	"admin-token-file": "A file that holds --admin-token, such as a mounted secret.",
	"admin-pprof":      "Serve Go's profiles at --admin below /debug/pprof/, for go tool pprof.",
	"admin-url": "Where browsers find the live page, such as https://ops.example/proxy-1/: the " +
		"pages of the other proxies in front of the same Redis link to it (default: from " +
		"--admin, if that is one address and not a loopback one).",
	"lock-history": "Memory for the history of locks during the last hour; 0 keeps none (default " +
		"${default}).",
	"metric-shapes": "Serve metrics of this many shapes of keys (order:17 has the shape " +
		"order:*): those that clients waited longest for. All other shapes are counted together. " +
		"0 serves none (default ${default}).",
	"slow-wait": "Log a line with the holder when a client has waited this long for a lock; at " +
		"most ten a second (default: none).",

	// Sentinels and replicas.
	"sentinel-user": "The user that logs in to the Sentinels of a redis+sentinel:// upstream.",
	"sentinel-password": "The password of --sentinel-user. Others on this machine can see the " +
		"command line: prefer LOCKPROXY_SENTINEL_PASSWORD.",
	"sentinel-password-file": "A file that holds --sentinel-password, such as a mounted secret.",
	"min-replicas": "Give out a lock only once this many replicas have it; otherwise it is taken " +
		"back and the answer is NOREPLICAS (default ${default}). See " +
		"docs/durability.md for what that gives.",
	"require-fsync": "Give out a lock only once it is on the disk of the upstream, and of " +
		"--min-replicas replicas; otherwise it is taken back and the answer is " +
		"NOREPLICAS. Needs Redis 7.2 or later with appendonly yes.",
	"replica-timeout": "How long --min-replicas and --require-fsync can take; --require-fsync " +
		"with appendfsync everysec needs 2s (default ${default}).",
	"takeover-guard": "How long an expired lock is still kept from others, for servers whose " +
		"clocks differ (default ${default}). Set the same value at every proxy.",
	"failover-hold": "Give out no lock for this long after Sentinels have named a new master, or " +
		"a replica of a cluster has become one: it can lack the last locks of the old " +
		"one (default ${default}).",

	// run.
	"key":    "The lock's key. Given more than once, all of these locks are held, or none.",
	"shared": "Share the lock with others that share it.",
	"limit":  "Share the lock if fewer than N hold it.",
	"timeout": "The lock is renewed while the command runs. If the proxy crashes, the lock stays " +
		"held for at most this long. If this machine crashes, the lock stays held for this long, " +
		"but at least 10 and at most 30 seconds, plus 3 seconds (default ${default}).",
	"wait": "Wait in line for this long if another client holds the lock; 0 waits forever " +
		"(default: don't wait).",
	"max": "Hold the lock for at most this many seconds, even if the command hangs: the command " +
		"is then ended as when the lock is lost (default: as long as the command runs).",
	"run --once": "Once the command has ended with 0, keep the lock until this long after the " +
		"command began, so that no other machine runs it again: 23h, for instance. If it fails, " +
		"the lock is free at once (default: the lock is free as soon as the command ends).",
	"note": "Why the lock is held, at most 256 bytes: shown wherever the holder is shown.",
	"kill-after": "When the lock is lost the command gets SIGTERM at once, and SIGKILL after " +
		"this long (default ${default}).",
	"conflict-exit-code": "Exit status if another client holds the lock, 0 to 255 (default " +
		"${default}).",
	"foreground": "Let the command read from the terminal and get its signals. Then it is not " +
		"in its own process group, and processes that it has started are not ended with it.",
	"quiet": "Print nothing if another client holds the lock.",

	// The proxy that run and top connect to.
	"url": "The lockproxy: redis://[user:pass@]host:port[/db], rediss:// for TLS, or " +
		"unix://[user:pass@]/path[?db=n] (default redis://127.0.0.1:6380).",
	"url-file": "A file that holds the URL of --url, such as a mounted secret.",
	"tls-ca": "The authorities that may have signed the proxy's certificate, PEM (default: " +
		"the system's).",
	"tls-server-name": "The name that the proxy's certificate must have (default: the URL's host).",

	// top.
	"filter": "Show only locks with this in their key, owner or client.",
	"sort":   "key, owner, client, held, remaining or waiters (default ${default}).",
	"reverse": "Reverse the order. Without this flag, the locks that are held or waited for " +
		"longest come first.",
	"rows":     "Show at most this many locks (default: all).",
	"interval": "Refresh after this many seconds (default ${default}).",
	"once":     "Print the locks once, which is the default if the output is not a terminal.",

	// check.
	"lock": "A lock's name, to see whether the user's key patterns cover it.",
	"json": "Print one JSON object.",
}

// placeholders are what stands for a value in help, by its type.
var placeholders = map[reflect.Type]string{
	reflect.TypeFor[int]():           "N",
	reflect.TypeFor[size]():          "SIZE",
	reflect.TypeFor[time.Duration](): "DURATION",
	reflect.TypeFor[seconds]():       "SECONDS",
	reflect.TypeFor[*seconds]():      "SECONDS",
}

// addFlagHelp does what kong would do with tags. Kong looks for variables in each help by a regular
// expression, which takes a third of the time that a process needs to start: the one that these
// have is replaced here.
func addFlagHelp(program *kong.Node) {
	for _, command := range append(program.Children, program) {
		for _, flag := range command.Flags {
			if flag.Help == "" {
				help := cmp.Or(flagHelp[command.Name+" --"+flag.Name], flagHelp[flag.Name])
				flag.Help = strings.ReplaceAll(help, "${default}", flag.Default)
			}
			if flag.PlaceHolder == "" {
				flag.PlaceHolder = placeholders[flag.Target.Type()]
			}
		}
	}
}
