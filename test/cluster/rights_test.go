package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// No client reads or writes with rights that Redis has not given it, nor lacks those that it has,
// whatever logins are accepted and refused, in pipelines, while connections to nodes are lost and
// slots move, and while clients come and get connections that others had. Its protocol, database and
// name are the same at all nodes. What each client may do is known from the replies to its logins
// alone. LOCKPROXY_TEST_RIGHTS is how many requests are sent; they follow from LOCKPROXY_TEST_SEED.
func TestRights(t *testing.T) {
	steps, seed := 4000, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("LOCKPROXY_TEST_RIGHTS")); err == nil {
		steps = n
	}
	if n, err := strconv.ParseUint(os.Getenv("LOCKPROXY_TEST_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Run("cluster", func(t *testing.T) {
		c := testredis.StartCluster(t, 3, 0)
		(&rightsBed{t: t, cluster: c, nodes: c.Nodes, url: c.URL()}).run(steps, seed)
	})
	t.Run("one Redis", func(t *testing.T) {
		s := testredis.Start(t)
		(&rightsBed{t: t, nodes: []*testredis.Server{s}, url: s.URL()}).run(steps, seed)
	})
}

// rightsUsers are the users and the keys of each. The proxy's URL is of the first.
var rightsUsers = []struct{ name, password, prefix string }{
	{"url", "urlpw", "u"}, {"ann", "annpw", "a"}, {"bob", "bobpw", "b"},
}

func prefixOf(user string) string {
	for _, u := range rightsUsers {
		if u.name == user {
			return u.prefix
		}
	}
	return ""
}

type rightsBed struct {
	t       *testing.T
	rand    *rand.Rand
	cluster *testredis.Cluster // nil in front of one Redis
	nodes   []*testredis.Server
	url     string
	proxy   string // its address
	half    bool   // the server obeys a part of a HELLO that it refuses
	counts  map[string]int
	others  []*proxytest.Conn // see crowd
}

func (b *rightsBed) run(steps int, seed uint64) {
	b.t.Logf("LOCKPROXY_TEST_SEED=%d", seed)
	b.rand, b.counts = rand.New(rand.NewPCG(seed, 0)), map[string]int{}
	for _, s := range b.nodes {
		for _, u := range rightsUsers {
			s.Ask("ACL", "SETUSER", u.name, "on", ">"+u.password, "~"+u.prefix+":*", "&*", "+@all")
		}
		s.Ask("SET", "u:version", "")
		b.half = b.half || strings.Contains(s.Ask("INFO", "server"), "redis_version:7.0.")
	}
	p := proxytest.Start(b.t, strings.Replace(b.url, "://", "://url:urlpw@", 1), nil)
	b.proxy = p.Addr
	clients := make([]*rightsClient, 5)
	for i := range clients {
		clients[i] = &rightsClient{rightsBed: b, id: i}
		clients[i].connect()
	}
	defer func() {
		for _, c := range clients {
			c.conn.Close()
		}
	}()
	sent, crowded := 0, b.rand.IntN(2) == 0 && b.cluster == nil
	for round := 0; sent < steps && !b.t.Failed(); round++ {
		if crowded && round%8 == 0 {
			b.crowd()
		}
		busy := clients[b.rand.IntN(len(clients)):]
		busy = busy[:1+b.rand.IntN(len(busy))]
		for _, c := range busy {
			sent += c.send()
		}
		if b.rand.IntN(12) == 0 {
			b.fault()
		}
		for _, c := range busy {
			leaves := b.rand.IntN(12)
			if leaves > 0 { // otherwise it has not read its replies
				c.receive()
			}
			if leaves <= 1 {
				c.connect()
			}
		}
		if round%50 == 49 {
			busy[0].checkName()
		}
	}
	reused := p.Server.Stats().Connections.Reused
	b.t.Logf("%d requests, %d times a connection served another client: %v", sent, reused, b.counts)
	if p.Shares != (reused > 0) {
		b.t.Errorf("connections have served other clients %d times; clients share: %v", reused, p.Shares)
	}
}

// crowd has further clients use connections of their own: while there are many, others greet without.
func (b *rightsBed) crowd() {
	for _, c := range b.others {
		c.Close()
	}
	b.others = nil
	for range 9 {
		c := proxytest.Dialed(b.t, proxytest.DialRaw(b.t, b.proxy))
		b.t.Cleanup(func() { c.Close() })
		c.Expect("MULTI", "+OK\r\n")
		b.others = append(b.others, c)
	}
}

// fault closes connections, or moves a slot.
func (b *rightsBed) fault() {
	node := b.nodes[b.rand.IntN(len(b.nodes))]
	if b.cluster != nil && b.rand.IntN(2) == 0 {
		user := rightsUsers[b.rand.IntN(len(rightsUsers))]
		b.cluster.Migrate(b.cluster.Slot(fmt.Sprint(user.prefix, ":", b.rand.IntN(8))), node)
		b.counts["slots moved"]++
		return
	}
	all := b.rand.IntN(4) == 0
	for _, line := range strings.Split(node.Ask("CLIENT", "LIST"), "\n") {
		if !strings.Contains(line, " user=default ") && strings.HasPrefix(line, "id=") &&
			(all || b.rand.IntN(5) == 0) {
			id, _, _ := strings.Cut(line[len("id="):], " ")
			node.Ask("CLIENT", "KILL", "ID", id)
			b.counts["connections closed"]++
		}
	}
}

// rightsClient is one client, and what it knows of itself.
type rightsClient struct {
	*rightsBed
	id, names  int
	conn       *proxytest.Conn
	user, name string
	proto, db  int
	asked      []rightsRequest
}

// rightsRequest is a request, and what is to be said of its reply when all earlier ones have come.
type rightsRequest struct {
	line  string
	check func(reply string) (ok bool)
}

func (c *rightsClient) connect() {
	if c.conn != nil {
		c.conn.Close()
		c.counts["clients disconnected"]++
	}
	c.conn = proxytest.Dialed(c.t, proxytest.DialRaw(c.t, c.proxy))
	c.user, c.name, c.proto, c.db, c.asked = "url", "", 2, 0, nil
}

// send sends some requests at once, and returns how many.
func (c *rightsClient) send() int {
	for range 1 + c.rand.IntN(6) {
		if last := c.add(); last {
			break
		}
	}
	var raw strings.Builder
	for _, r := range c.asked {
		words := strings.Fields(r.line)
		fmt.Fprintf(&raw, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&raw, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	c.conn.Write([]byte(raw.String())) // reading shows a failure
	return len(c.asked)
}

func (c *rightsClient) receive() {
	asked := c.asked
	c.asked = nil
	var done []string
	for _, r := range asked {
		reply, err := c.conn.TryReply()
		if err != nil {
			c.connect()
			return
		}
		done = append(done, fmt.Sprintf("%s: %.80q", r.line, reply))
		c.counts[word(reply)]++
		lost := strings.HasPrefix(reply, "-UPSTREAM") && !strings.Contains(reply, "refused") ||
			strings.HasPrefix(reply, "-CLUSTERDOWN") || strings.HasPrefix(reply, "-TRYAGAIN")
		if !lost && !r.check(reply) {
			c.t.Errorf("client %d, user %s, protocol %d, database %d, name %q:\n%s", c.id, c.user,
				c.proto, c.db, c.name, strings.Join(done, "\n"))
			return
		}
	}
}

// word is what replies are counted by.
func word(reply string) string {
	first, _, _ := strings.Cut(strings.TrimRight(reply, "\r\n"), " ")
	if strings.HasPrefix(first, "-") {
		return first
	}
	return "other replies"
}

func is(want string) func(string) bool {
	return func(reply string) bool { return reply == want+"\r\n" }
}

func begins(want ...string) func(string) bool {
	return func(reply string) bool {
		for _, w := range want {
			if strings.HasPrefix(reply, w) {
				return true
			}
		}
		return false
	}
}

func (c *rightsClient) ask(line string, check func(reply string) bool) {
	c.asked = append(c.asked, rightsRequest{line, check})
}

// add adds a request. last says that nothing may follow before its reply.
func (c *rightsClient) add() (last bool) {
	u := rightsUsers[c.rand.IntN(len(rightsUsers))]
	password, wrong := u.password, c.rand.IntN(2) == 0
	if wrong {
		password = "wrong"
	}
	switch c.rand.IntN(16) {
	case 0, 1:
		c.ask("AUTH "+u.name+" "+password, func(reply string) bool {
			if !wrong && reply == "+OK\r\n" {
				c.user = u.name
				return true
			}
			return wrong && strings.HasPrefix(reply, "-WRONGPASS")
		})
	case 2, 3:
		return c.addHello(u.name, password, wrong)
	case 4:
		c.ask("RESET", func(reply string) bool {
			c.user, c.name, c.proto, c.db = "url", "", 2, 0
			return reply == "+RESET\r\n"
		})
	case 5:
		db := c.rand.IntN(2)
		c.ask("SELECT "+strconv.Itoa(db), func(reply string) bool {
			if reply == "+OK\r\n" {
				c.db = db
			}
			return reply == "+OK\r\n" || db == 1 && c.cluster != nil &&
				begins("-ERR SELECT is not allowed", "-ERR DB index is out of range")(reply)
		})
	case 6:
		name := c.newName()
		if wrong {
			c.ask("CLIENT SETNAME \x80", begins("-ERR Client names"))
			break
		}
		c.ask("CLIENT SETNAME "+name, func(reply string) bool {
			c.name = name
			return reply == "+OK\r\n"
		})
	case 7:
		c.addTransaction(u.name, u.prefix)
	default:
		c.addData(u.prefix)
	}
	return false
}

func (c *rightsClient) newName() string {
	c.names++
	return fmt.Sprintf("n%dx%d", c.id, c.names)
}

// addHello adds a HELLO. Redis up to 7.0 logs in although it refuses the name behind that: one
// Redis is asked who the client is now.
func (c *rightsClient) addHello(user, password string, wrong bool) (last bool) {
	proto, name, bad := 2+c.rand.IntN(2), "", false
	line, login := "HELLO "+strconv.Itoa(proto), c.rand.IntN(3) > 0
	if login {
		line += " AUTH " + user + " " + password
	}
	named := c.rand.IntN(2) == 0
	if named {
		name, bad = c.newName(), c.rand.IntN(2) == 0
		if bad {
			name = "\x80"
		}
		line += " SETNAME " + name
	}
	c.ask(line, func(reply string) bool {
		if refused := login && wrong || bad; refused {
			return begins("-WRONGPASS", "-ERR Client names")(reply)
		}
		if login {
			c.user = user
		}
		if named {
			c.name = name
		}
		c.proto = proto
		return begins("%", "*1")(reply)
	})
	if !bad || !login || wrong || c.cluster != nil || !c.half {
		return false
	}
	c.ask("ACL WHOAMI", func(reply string) bool {
		before := c.user
		for _, u := range rightsUsers {
			if strings.Contains(reply, "\r\n"+u.name+"\r\n") {
				c.user = u.name
			}
		}
		return c.user == before || c.user == user
	})
	return true
}

// addTransaction adds a MULTI. In a cluster it can set nothing for the connection.
func (c *rightsClient) addTransaction(user, prefix string) {
	key := fmt.Sprint(prefix, ":", c.rand.IntN(8))
	c.ask("MULTI", is("+OK"))
	sets := c.cluster != nil && c.rand.IntN(2) == 0
	if sets {
		lines := []string{"AUTH " + user + " " + user + "pw", "HELLO 3 AUTH ann annpw",
			"CLIENT SETNAME " + c.newName(), "CLIENT NO-TOUCH ON", "SELECT 7"}
		c.ask(lines[c.rand.IntN(len(lines))], begins("-ERR"))
	}
	refused := false
	c.ask("GET "+key, func(reply string) bool {
		refused = prefixOf(c.user) != prefix
		return !refused && reply == "+QUEUED\r\n" || refused && begins("-NOPERM")(reply)
	})
	if sets && c.rand.IntN(2) == 0 {
		c.ask("DISCARD", begins("+OK", "-ERR DISCARD without MULTI"))
		return
	}
	c.ask("EXEC", func(reply string) bool {
		if sets || refused {
			return begins("-EXECABORT", "-ERR EXEC without MULTI")(reply)
		}
		return begins("*1", "-EXECABORT", "-ERR EXEC without MULTI")(reply)
	})
}

// addData adds a request for keys with a prefix.
func (c *rightsClient) addData(prefix string) {
	key := func() string { return fmt.Sprint(prefix, ":", c.rand.IntN(8)) }
	allowed := func(check func(reply string) bool) func(string) bool {
		return func(reply string) bool {
			if prefixOf(c.user) != prefix {
				return strings.HasPrefix(reply, "-NOPERM")
			}
			return check(reply)
		}
	}
	null := func(reply string) bool {
		return c.proto == 2 && reply == "$-1\r\n" || c.proto == 3 && reply == "_\r\n"
	}
	inDatabase := func(reply string) bool {
		return null(reply) || reply == fmt.Sprintf("$2\r\nd%d\r\n", c.db)
	}
	switch c.rand.IntN(8) {
	case 0:
		c.ask("GET "+key(), allowed(inDatabase))
	case 1:
		k := key()
		c.ask("EVAL return{redis.call('set',KEYS[1],'x')} 1 "+k+"x", allowed(begins("*1")))
	case 2:
		c.ask("MGET "+key()+" "+key()+" "+key(), allowed(begins("*3")))
	case 3:
		c.ask("GET "+key()+"none", allowed(null))
	case 4:
		c.ask("DEL "+key()+" "+key(), allowed(begins(":")))
	case 5:
		c.ask(fmt.Sprintf("LOCK %s:lock%dx%d 600", prefix, c.id, c.names), allowed(begins(":", "$-1",
			"_")))
		c.names++
	case 6:
		c.ask("CLIENT GETNAME", func(reply string) bool {
			return null(reply) && c.name == "" || reply == wire.Bulk(c.name)
		})
	case 7:
		if len(c.asked) > 0 { // otherwise the database is known
			return
		}
		c.ask(fmt.Sprintf("SET %s d%d", key(), c.db), allowed(is("+OK")))
	}
}

// greeting is what CLIENT LIST says of a connection by which a client has said who it is.
var greeting = regexp.MustCompile(` cmd=(hello|select|client\|setname) `)

// checkName compares the name of the client's connections to all nodes with its own. One of a
// connection that the proxy has just closed can be older for a moment.
func (c *rightsClient) checkName() {
	if c.name == "" || c.t.Failed() {
		return
	}
	begin := fmt.Sprintf(" name=n%dx", c.id)
	testwait.Until(c.t, "all nodes know the client by "+c.name, func() bool {
		for _, s := range c.nodes {
			for _, line := range strings.Split(s.Ask("CLIENT", "LIST"), "\n") {
				if strings.Contains(line, begin) && !greeting.MatchString(line) &&
					!strings.Contains(line, " name="+c.name+" ") {
					return false
				}
			}
		}
		return true
	})
	c.counts["names compared"]++
}
