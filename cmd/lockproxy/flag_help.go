package main

import (
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

// flagHelp is the help of each flag, by its name, where its tag has none.
var flagHelp = map[string]string{
	// Serving.
	"config": "Read settings from this file: TOML, with the names of flags, as in " +
		"max-clients = 5000. SIGHUP reads it again.",
	"listen": "Where clients connect: host:port, unix:///path for a Unix socket, or systemd" +
		" for that of a .socket unit (default ${default}).",
	"listen-mode": "Permissions of the Unix socket, octal; who may write to it may connect " +
		"(default ${default}).",
	"proxy-protocol-from": "" +
		"Networks whose connections begin with a PROXY protocol header, version 1 or " +
		"2, such as a load balancer's; one without is closed. From elsewhere such a " +
		"header is no more than a bad request.",
	"handshake-timeout": "For a client's PROXY header and TLS handshake (default ${default}).",
	"shutdown-timeout": "" +
		"After SIGTERM or SIGINT: for running commands and transactions to finish and" +
		" locks to be released (default ${default}).",
	"shutdown-delay": "" +
		"How long after SIGTERM or SIGINT clients are served as before while /readyz " +
		"says no, so that balancers send them elsewhere (default ${default}).",
	"handover": "A Unix socket by which a new process takes over from a running one: start it" +
		" with the same --listen and --handover, and the running one hands it the " +
		"listening socket, finishes and ends.",
	"upstream": "The Redis to stand in front of: redis://[user:pass@]host:port[/db], " +
		"rediss:// for TLS, unix://[user:pass@]/path[?db=n], " +
		"redis+sentinel://[user:pass@]host:port,host:port/group[/db] " +
		"(rediss+sentinel:// for TLS) for the master that Sentinels name, or " +
		"redis+cluster://[user:pass@]host:port,host:port (rediss+cluster:// for TLS) " +
		"for a whole Redis Cluster, some of whose nodes are named. Clients start as " +
		"this user, in this database. Without it: an in-memory store, for trying out," +
		" on loopback only.",
	"upstream-file": "A file that holds the URL of --upstream, such as a mounted secret.",
	"embedded": "Serve the in-memory store to other machines too, for trying out: nothing is " +
		"kept, and no other proxy knows of its locks.",
	"upstream-mode": "shared: plain requests of many clients go by a few shared connections, all " +
		"others by the client's own. dedicated: everything goes by the client's own " +
		"(default ${default}).",
	"upstream-conns": "Connections that the clients of one user, database and protocol share at " +
		"most (default ${default}).",
	"home-idle": "After how long a client's own connection to Redis is closed that it has not " +
		"needed, if nothing was changed on it; it is opened again on demand. 0 is " +
		"never (default ${default}).",
	"upstream-dial-timeout": "For connecting and logging in to the upstream (default ${default}).",
	"cluster-announce": "In front of a Redis Cluster: the address that clients which know Redis " +
		"Cluster are told to use (default: the one that each has come to).",
	"upstream-tls-ca": "The authorities that may have signed the certificate of a rediss:// " +
		"upstream, PEM (default: the system's).",
	"upstream-tls-cert": "The certificate to show to the upstream, PEM.",
	"upstream-tls-key":  "The key of --upstream-tls-cert, PEM.",
	"upstream-tls-server-name": "" +
		"The name that the upstream's certificate must have (default: the URL's host;" +
		" of a cluster or of what Sentinels name, each server's).",
	"tls-cert": "Serve clients with TLS: the certificate and its chain, PEM. SIGHUP reads all" +
		" of these files again; if one is bad, those before stay in use.",
	"tls-key": "The key of --tls-cert, PEM.",
	"tls-client-ca": "Let in only clients with a certificate that one of these authorities has " +
		"signed, PEM.",
	"max-clients": "Clients at one time; more are refused (default ${default}).",
	"client-buffer": "Largest request that is held whole: a lock command, AUTH, HELLO, CLIENT or " +
		"COMMAND; others are streamed. Sizes are written as in redis.conf: 64kb, 1mb," +
		" 2gb (default ${default}).",
	"max-unread": "Room in temporary files for replies that slow clients have not read yet, all" +
		" together; a client for whose replies none is left is closed, and the log " +
		"says so (default ${default}).",
	"max-args":    "Most arguments of one request (default ${default}, which is Redis's).",
	"max-bulk":    "Longest argument: the upstream's proto-max-bulk-len (default ${default}).",
	"max-inline":  "Longest inline request (default ${default}, which is Redis's).",
	"max-timeout": "Longest timeout that LOCK accepts (default ${default}).",
	"timestamp-unit": "Unit of the expiry time written at a lock's key: what the foreign clients " +
		"(SETNX) next to LOCK use (default ${default}).",
	"fence-retention": "How long a lock's last token is remembered after its end, so that tokens " +
		"rise even if the upstream's clock steps back (default ${default}).",
	"deadlock": "What is done when owners (OWNER) wait for each other's locks in a cycle. " +
		"refuse: the wait that began last is answered DEADLOCK. log: it is logged and" +
		" counted. off: nobody looks (default ${default}).",
	"park": "Let clients of other lock libraries wait in line: by how much the nil of a " +
		"SET key value NX PX|EX may be delayed for a lock that was seen being taken. " +
		"Released meanwhile, it is given first come, first served. 0 is not at all " +
		"(default ${default}).",
	"park-keys":  "The keys that --park is for, a pattern as for KEYS (default ${default}).",
	"log-level":  "trace, debug, info, warn, error or off (default ${default}).",
	"log-format": "One line of text, or of JSON, per event (default ${default}).",

	// Watching.
	"admin": "Serve /healthz, /readyz, /metrics and a live page at this host:port, with " +
		"plain HTTP. Who reaches it sees the names of locks and their holders " +
		"(default: not at all).",
	"admin-token": "Who logs in on the live page with this may release locks there; better given" +
		" as LOCKPROXY_ADMIN_TOKEN. At least 16 characters (default: nobody may).",
	"admin-token-file": "A file that holds --admin-token, such as a mounted secret.",
	"admin-pprof": "Serve profiles at --admin for go tool pprof: Go's below /debug/pprof/, and " +
		"the waits for locks at /debug/locks/pprof.",
	"admin-url": "Where browsers find the live page, such as https://ops.example/proxy-1/: the " +
		"pages of the other proxies in front of the same Redis link to it (default: made of " +
		"--admin, if that is one address and not a loopback one).",
	"lock-history": "Memory for what happened to locks within the last hour; 0 keeps nothing " +
		"(default ${default}).",
	"metric-shapes": "Serve metrics of so many shapes of keys (order:17 is order:*), those that " +
		"clients waited longest for, and one of all others; 0 serves none (default " +
		"${default}).",
	"slow-wait": "Log a line when a client has waited so long for a lock, with its holder; at " +
		"most ten a second (default: none).",

	// Sentinels and replicas.
	"sentinel-user": "The user to log in to the Sentinels of a redis+sentinel:// upstream as.",
	"sentinel-password": "Its password. Others on this machine may see a command line: set " +
		"LOCKPROXY_SENTINEL_PASSWORD instead.",
	"sentinel-password-file": "A file that holds --sentinel-password, such as a mounted secret.",
	"min-replicas": "Give out a lock only once so many replicas have it; otherwise it is taken " +
		"back and the answer is NOREPLICAS (default ${default}). See " +
		"docs/durability.md for what that gives.",
	"require-fsync": "Give out a lock only once it is on the disk of the upstream, and of " +
		"--min-replicas replicas; otherwise it is taken back and the answer is " +
		"NOREPLICAS. Needs Redis 7.2 or later with appendonly yes.",
	"replica-timeout": "How long --min-replicas and --require-fsync may take; with the latter " +
		"and appendfsync everysec, want 2s (default ${default}).",
	"takeover-guard": "" +
		"How long after a lock's expiry nobody else gets it, for servers whose clocks" +
		" differ (default ${default}). The same at every proxy.",
	"failover-hold": "Give out no lock for so long after Sentinels have named a new master, or a " +
		"replica has become one of a cluster: it may lack the last locks of the old " +
		"one (default ${default}).",

	// run.
	"key":    "The lock's key. Given more than once, all of these locks are held, or none.",
	"shared": "Share the lock with others who do.",
	"limit":  "Share the lock while fewer than N hold it.",
	"timeout": "The lock is renewed for as long as the command runs; this is the longest " +
		"that it stays held if the proxy crashes. If this machine crashes it is as " +
		"long, but at least 10 and at most 30 seconds, and 3 more (default " +
		"${default}).",
	"wait": "Wait in line for this long if another holds the lock; 0 waits without end " +
		"(default: don't wait).",
	"kill-after": "When the lock is lost the command gets SIGTERM at once, and SIGKILL after " +
		"this long (default ${default}).",
	"conflict-exit-code": "Exit status if another holds the lock, 0 to 255 (default ${default}).",
	"foreground": "Let the command read from the terminal and get its signals. Then it is not " +
		"in its own process group, and what it has started is not ended with it.",
	"quiet": "Don't say so if another holds the lock.",

	// The proxy that run and top connect to.
	"url": "The lockproxy: redis://[user:pass@]host:port[/db], rediss:// for TLS, or " +
		"unix://[user:pass@]/path[?db=n] (default redis://127.0.0.1:6380).",
	"url-file": "A file that holds the URL of --url, such as a mounted secret.",
	"tls-ca": "The authorities that may have signed the proxy's certificate, PEM (default: " +
		"the system's).",
	"tls-server-name": "The name that the proxy's certificate must have (default: the URL's host).",

	// top.
	"filter":   "Show only locks with this in their key, owner or client.",
	"sort":     "key, owner, client, held, remaining or waiters (default ${default}).",
	"reverse":  "The largest first.",
	"rows":     "Show no more than this many (default: all).",
	"interval": "Look again after this long (default ${default}).",
	"once":     "Print the locks once, as is done in any case if the output is no terminal.",

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

// addFlagHelp gives each flag its help, and a placeholder if its type has one.
func addFlagHelp(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if command, ok := node.(*kong.Node); ok {
			for _, flag := range command.Flags {
				if flag.Help == "" {
					flag.Help = flagHelp[flag.Name]
				}
				if flag.PlaceHolder == "" {
					flag.PlaceHolder = placeholders[flag.Target.Type()]
				}
			}
		}
		return next(nil)
	})
}
