package sharing_test

import (
	"net"
	"strings"
)

// parting is what a client does last. A request without an expected reply gets none, or waits.
type parting struct {
	name   string
	single bool // only in front of one Redis
	ask    [][2]string
}

var hello3 = [2]string{"HELLO 3", "%…"}

var partings = []parting{
	{"nothing", false, nil},
	{"a name", false, [][2]string{{"CLIENT SETNAME @", "+OK"}}},
	{"a database", true, [][2]string{{"SELECT 3", "+OK"}, {"GET db", "$1 3"}}},
	{"a name and a database", true, [][2]string{{"CLIENT SETNAME @", "+OK"}, {"SELECT 2", "+OK"},
		{"GET db", "$1 2"}, {"CLIENT GETNAME", "$ @"}}},
	{"a login", false, [][2]string{{"AUTH ann pw", "+OK"}, {"ACL WHOAMI", "$3 ann"}}},
	{"a login, then plain requests", false, [][2]string{{"AUTH ann pw", "+OK"}, {"ECHO @", "$ @"},
		{"GET {@}nothing", "$-1"}}},
	{"a login, a database and WATCH", true, [][2]string{{"AUTH ann pw", "+OK"}, {"SELECT 1", "+OK"},
		{"WATCH {secret}", "+OK"}}},
	{"a login that is refused", false, [][2]string{{"AUTH ann @", "-WRONGPASS…"}}},
	{"HELLO with a login", false, [][2]string{{"HELLO 3 AUTH ann pw SETNAME @", "%…"}}},
	{"HELLO 3", false, [][2]string{hello3, {"GET {@}nothing", "_"}}},
	{"RESET", false, [][2]string{{"AUTH ann pw", "+OK"}, {"CLIENT SETNAME @", "+OK"},
		{"RESET", "+RESET"}}},
	{"MULTI", false, [][2]string{{"MULTI", "+OK"}, {"SET {@}k @", "+QUEUED"}}},
	{"MULTI that will fail", false, [][2]string{{"MULTI", "+OK"}, {"GET", "-ERR…"}}},
	{"MULTI with a database", true, [][2]string{{"MULTI", "+OK"}, {"SELECT 3", "+QUEUED"},
		{"EXEC", "*1 +OK"}}},
	{"WATCH", false, [][2]string{{"WATCH {secret}", "+OK"}}},
	{"SUBSCRIBE", false, [][2]string{{"SUBSCRIBE secret", "*3 $9 subscribe $6 secret :1"}}},
	{"SUBSCRIBE and UNSUBSCRIBE", false, [][2]string{
		{"SUBSCRIBE secret", "*3 $9 subscribe $6 secret :1"},
		{"UNSUBSCRIBE secret", "*3 $11 unsubscribe $6 secret :0"}}},
	{"PSUBSCRIBE", false, [][2]string{{"PSUBSCRIBE *", "*3 $10 psubscribe $1 * :1"}}},
	{"SSUBSCRIBE", false, [][2]string{{"SSUBSCRIBE {secret}",
		"*3 $10 ssubscribe $8 {secret} :1"}}},
	{"SUBSCRIBE in RESP3", false, [][2]string{hello3,
		{"SUBSCRIBE secret", ">3 $9 subscribe $6 secret :1"}, {"ECHO @", "$ @"}}},
	{"tracking", false, [][2]string{hello3, {"CLIENT TRACKING ON", "+OK"}, {"GET {secret}", "…"}}},
	{"tracking with BCAST", false, [][2]string{hello3, {"CLIENT TRACKING ON BCAST", "+OK"}}},
	{"tracking that has ended", false, [][2]string{hello3, {"CLIENT TRACKING ON BCAST", "+OK"},
		{"CLIENT TRACKING OFF", "+OK"}}},
	{"BLPOP", false, [][2]string{{"BLPOP {trap@} 0", ""}}},
	{"BLPOP in a pipeline", false, [][2]string{{"SET {@}k @", "+OK"}, {"BLPOP {trap@} 0", ""},
		{"ECHO @", ""}}},
	{"BLMOVE", false, [][2]string{{"BLMOVE {trap@} {trap@}to LEFT LEFT 0", ""}}},
	{"BZPOPMIN", false, [][2]string{{"BZPOPMIN {trap@}z 0", ""}}},
	{"XREAD", false, [][2]string{{"XREAD BLOCK 0 STREAMS {trap@}x $", ""}}},
	{"BLPOP in another database", true, [][2]string{{"SELECT 1", "+OK"}, {"BLPOP {trap@} 0", ""}}},
	{"CLIENT REPLY OFF", false, [][2]string{{"CLIENT REPLY OFF", ""}, {"SET {@}k @", ""}}},
	{"CLIENT REPLY SKIP", false, [][2]string{{"CLIENT REPLY SKIP", ""}}},
	{"CLIENT REPLY OFF and ON", false, [][2]string{{"CLIENT REPLY OFF", ""}, {"ECHO @", ""},
		{"CLIENT REPLY ON", "+OK"}}},
	{"MONITOR", true, [][2]string{{"MONITOR", "+OK"}}},
	{"CLIENT ID", false, [][2]string{{"CLIENT ID", ":…"}}},
	{"CLIENT NO-EVICT", false, [][2]string{{"CLIENT NO-EVICT ON", "+OK"}}},
	{"READONLY", false, [][2]string{{"READONLY", "…"}}},
	{"a lock", false, [][2]string{{"LOCK {@}lock 600", ":…"}}},
	{"a session lock", false, [][2]string{{"LOCK {@}lock 600 SESSION", ":…"}}},
	{"waiting for a lock", false, [][2]string{{"LOCK {@}lock 600", ":…"},
		{"LOCK {@}lock 600 WAIT 600", ""}}},
	{"a large reply", false, [][2]string{{"EVAL return(string.rep('@',20000)) 0", "$…"}}},
	{"QUIT", false, [][2]string{{"CLIENT SETNAME @", "+OK"}, {"QUIT", "+OK"}}},
}

// halves are requests that end before their end.
var halves = []string{
	"*3\r\n$3\r\nSET\r\n$6\r\nsec",
	"*2\r\n$4\r\nAUTH\r\n$6\r\nsec",
	"MUL",
	"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$500000\r\n" + strings.Repeat("<half>", 20_000),
	"*1\r\n$x\r\n", // Redis would close the connection for that
}

// leave is the end of a client: it has read the replies to some of its last requests.
func (c *reuser) leave(nc net.Conn) {
	last := partings[c.rand.IntN(len(partings))]
	if last.single && !c.single {
		return
	}
	c.loud = true
	replies, tail := len(last.ask), ""
	if replies > 0 && c.rand.IntN(4) == 0 {
		replies = c.rand.IntN(replies)
	}
	if last.name != "QUIT" && c.rand.IntN(3) == 0 {
		tail = halves[c.rand.IntN(len(halves))]
	}
	if !c.exchange(last.ask, replies, tail) {
		return
	}
	switch c.rand.IntN(4) {
	case 0:
		if tcp, ok := nc.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset
		}
	case 1:
		c.c.CloseWrite()
	}
}
