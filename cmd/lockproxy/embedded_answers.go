package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// answers are what the embedded store says of itself and its clients. miniredis does not, and
// client libraries and graphical tools that ask for it first would take the store for broken.
type answers struct {
	store *miniredis.Miniredis
	redis *server.Server // store's, which store forgets when it is closed
	port  int
	began time.Time

	mu      sync.Mutex
	clients map[*server.Peer]*storeClient // guarded by mu, as what they point to
	lastID  int                           // guarded by mu
}

// storeClient is what is known of a connection to the store.
type storeClient struct {
	id                int
	since             time.Time
	db                int
	multi, subscribed bool // miniredis alone knows what to do then
	library           [2]string
	last              string
}

func newAnswers(store *miniredis.Miniredis) *answers {
	return &answers{store: store, redis: store.Server(), began: time.Now(),
		port: store.Server().Addr().Port, clients: map[*server.Peer]*storeClient{}}
}

// answer is miniredis' hook: it reports whether a command has been answered here.
func (a *answers) answer(peer *server.Peer, name string, args ...string) (done bool) {
	client := a.of(peer)
	if client == nil {
		return false
	}
	words := append([]string{name}, args...)
	for i := range min(len(words), 2) {
		words[i] = strings.ToUpper(words[i])
	}
	if name == "POST" || name == "HOST:" { // as in Redis: no web page gives it commands
		peer.Close()
	}
	if peer.Closed() {
		return true
	}
	multi, subscribed := a.follow(client, words)
	if multi || subscribed {
		return false
	}
	both := strings.Join(words[:min(len(words), 2)], " ")
	switch {
	case name == "INFO":
		peer.WriteBulk(a.info(args))
	case name == "ROLE" && len(args) == 0:
		peer.WriteLen(3)
		peer.WriteBulk("master")
		peer.WriteInt(0)
		peer.WriteLen(0)
	case name == "RESET" && len(args) == 0:
		a.reset(peer, client)
	case both == "CLIENT ID" && len(words) == 2:
		peer.WriteInt(client.id)
	case both == "CLIENT INFO" && len(words) == 2:
		peer.WriteBulk(a.list(func(p *server.Peer) bool { return p == peer }))
	case both == "CLIENT LIST" && len(words) == 2:
		peer.WriteBulk(a.list(func(*server.Peer) bool { return true }))
	case both == "CLIENT UNBLOCK" && len(words) > 2 && len(words) < 5:
		unblock(peer, words[2:])
	case both == "CLIENT SETINFO" && len(words) == 4:
		a.setInfo(peer, client, words[2], words[3])
	case both == "CONFIG GET" && len(words) > 2:
		a.config(peer, words[2:])
	case both == "OBJECT ENCODING" && len(words) == 3:
		a.encoding(peer, client, words[2])
	case both == "MEMORY USAGE" && len(words) == 5 && strings.EqualFold(words[3], "SAMPLES"):
		a.redis.Dispatch(peer, words[:3])
	default:
		return false
	}
	return true
}

// of returns the client of a connection. It is nil for a command of a script: miniredis gives each
// of these a peer of its own, with a context that it has from the start, and the script holds the
// store.
func (a *answers) of(peer *server.Peer) *storeClient {
	a.mu.Lock()
	defer a.mu.Unlock()
	client := a.clients[peer]
	if client == nil && peer.Ctx == nil {
		a.lastID++
		client = &storeClient{id: a.lastID, since: time.Now()}
		a.clients[peer] = client
		peer.OnDisconnect(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.clients, peer)
		})
	}
	return client
}

// follow notes what a command changes of its connection, and returns how that has been until then.
func (a *answers) follow(client *storeClient, words []string) (multi, subscribed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	multi, subscribed = client.multi, client.subscribed
	client.last = strings.ToLower(words[0])
	switch words[0] {
	case "MULTI":
		client.multi = true
	case "EXEC", "DISCARD":
		client.multi = false
	case "SUBSCRIBE", "PSUBSCRIBE":
		client.subscribed = true
	case "SELECT":
		if db, err := strconv.Atoi(strings.Join(words[1:], " ")); err == nil && db >= 0 && !multi {
			client.db = db
		}
	}
	return multi, subscribed
}

func (a *answers) reset(peer *server.Peer, client *storeClient) {
	a.mu.Lock()
	client.db = 0
	a.mu.Unlock()
	peer.Ctx, peer.Resp3, peer.ClientName = nil, false, ""
	peer.WriteInline("RESET")
}

// unblock says that a client is not blocked at the store. The proxy asks for that when it unblocks
// one that waits for a lock.
func unblock(peer *server.Peer, words []string) {
	_, err := strconv.ParseInt(words[0], 10, 64)
	reasons := []string{"TIMEOUT", "ERROR"}
	switch {
	case len(words) > 1 && !slices.Contains(reasons, strings.ToUpper(words[1])):
		peer.WriteError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
	case err != nil:
		peer.WriteError("ERR value is not an integer or out of range")
	default:
		peer.WriteInt(0)
	}
}

func (a *answers) setInfo(peer *server.Peer, client *storeClient, attribute, value string) {
	at := slices.Index([]string{"LIB-NAME", "LIB-VER"}, strings.ToUpper(attribute))
	switch {
	case at < 0:
		peer.WriteError(fmt.Sprintf("ERR Unrecognized option '%s'", attribute))
		return
	case strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' }):
		peer.WriteError(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.",
			strings.ToLower(attribute)))
		return
	}
	a.mu.Lock()
	client.library[at] = value
	a.mu.Unlock()
	peer.WriteOK()
}

// list has a line for each connection that is chosen, in the order in which they were opened.
func (a *answers) list(chosen func(*server.Peer) bool) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := map[int]string{}
	for peer, c := range a.clients {
		if chosen(peer) {
			lines[c.id] = fmt.Sprintf("id=%d name=%s age=%d db=%d cmd=%s user=default resp=%d "+
				"lib-name=%s lib-ver=%s\n", c.id, peer.ClientName,
				int(time.Since(c.since).Seconds()),
				c.db, c.last, 2+btoi(peer.Resp3), c.library[0], c.library[1])
		}
	}
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(lines)) {
		text.WriteString(lines[id])
	}
	return text.String()
}

// databases are as many as Redis has by default. miniredis has others, too, which are not listed.
const databases = 16

// storeSettings are those of Redis that are true of the store. None of them can be changed.
var storeSettings = []string{"appendonly", "no", "databases", strconv.Itoa(databases), "maxmemory",
	"0", "maxmemory-policy", "noeviction", "notify-keyspace-events", "", "save", "", "timeout", "0"}

func (a *answers) config(peer *server.Peer, patterns []string) {
	var found []string
	for pair := range slices.Chunk(storeSettings, 2) {
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			matches, _ := path.Match(strings.ToLower(pattern), pair[0])
			return matches
		}) {
			found = append(found, pair...)
		}
	}
	peer.WriteMapLen(len(found) / 2)
	for _, word := range found {
		peer.WriteBulk(word)
	}
}

// encoding answers as Redis would of a value of this type and size.
func (a *answers) encoding(peer *server.Peer, client *storeClient, key string) {
	db := a.store.DB(a.dbOf(client))
	encoding := map[string]string{"list": "listpack", "hash": "hashtable", "set": "hashtable",
		"zset": "skiplist", "stream": "stream"}[db.Type(key)]
	if db.Type(key) == "string" {
		value, _ := db.Get(key)
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err == nil && strconv.FormatInt(n, 10) == value:
			encoding = "int"
		case len(value) <= 44:
			encoding = "embstr"
		default:
			encoding = "raw"
		}
	}
	if encoding == "" {
		peer.WriteNull()
		return
	}
	peer.WriteBulk(encoding)
}

func (a *answers) dbOf(client *storeClient) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return client.db
}

// info has the sections that are named: all, if none is.
func (a *answers) info(names []string) string {
	wanted := func(section string) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
			return strings.EqualFold(name, section) ||
				slices.Contains([]string{"default", "all", "everything"}, strings.ToLower(name))
		})
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	redis, up := a.redis, int(time.Since(a.began).Seconds())
	var parts []string
	for _, section := range []struct{ name, text string }{
		{"Server", fmt.Sprintf("redis_version:8.4.0\nredis_mode:standalone\n"+
			"server_name:miniredis\nos:%s %s\n"+
			"process_id:%d\ntcp_port:%d\nuptime_in_seconds:%d\nuptime_in_days:%d\n",
			runtime.GOOS, runtime.GOARCH, os.Getpid(), a.port, up, up/86400)},
		{"Clients", fmt.Sprintf("connected_clients:%d\nblocked_clients:0\n", redis.ClientsLen())},
		{"Memory", fmt.Sprintf("used_memory:%d\nused_memory_rss:%d\nmaxmemory:0\n"+
			"maxmemory_policy:noeviction\n", memory.HeapAlloc, memory.Sys)},
		{"Persistence", "loading:0\nrdb_changes_since_last_save:0\naof_enabled:0\n"},
		{"Stats", fmt.Sprintf("total_connections_received:%d\ntotal_commands_processed:%d\n",
			redis.TotalConnections(), redis.TotalCommands())},
		{"Replication", "role:master\nconnected_slaves:0\nmaster_repl_offset:0\n"},
		{"Modules", ""},
		{"Cluster", "cluster_enabled:0\n"},
		{"Keyspace", a.keyspace()},
	} {
		if wanted(section.name) {
			parts = append(parts, "# "+section.name+"\r\n"+
				strings.ReplaceAll(section.text, "\n", "\r\n"))
		}
	}
	return strings.Join(parts, "\r\n")
}

func (a *answers) keyspace() string {
	var text strings.Builder
	for i := range databases {
		db, expires := a.store.DB(i), 0
		keys := db.Keys()
		for _, key := range keys {
			expires += btoi(db.TTL(key) > 0)
		}
		if len(keys) > 0 {
			fmt.Fprintf(&text, "db%d:keys=%d,expires=%d,avg_ttl=0\n", i, len(keys), expires)
		}
	}
	return text.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
