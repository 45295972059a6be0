package proxy

import (
	"bytes"
	"math"
	"strings"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/passthrough"
)

// route says how one request goes to the upstream.
type route struct {
	passthrough.Expect
	raw         []byte // what is sent: the request itself, mostly
	way         passthrough.Way
	syncsWrites bool // the home counts as one that has written what lanes have, see syncWrites
}

// request is the route in passthrough's terms.
func (r route) request() passthrough.Request {
	return passthrough.Request{Raw: r.raw, Way: r.way, Expect: r.Expect, SyncsWrites: r.syncsWrites}
}

// maxShared is how long a request can be that goes by a connection that others use too, bytes.
const maxShared = 64 << 10

// routeOf decides it by the table. It is pure: no I/O.
func routeOf(cmd *command, req resp.Request) route {
	cmd = cmd.of(req.Args)
	r := route{raw: req.Raw, way: cmd.way}
	if req.Inline { // the embedded store reads arrays only
		r.raw = resp.AppendCommand(nil, req.Args...)
	}
	r.Effect, r.Count = cmd.Effect, len(req.Args)-1
	switch r.Effect {
	case commands.SetName, commands.SetLibName, commands.SetLibVer:
		name := string(req.Args[len(req.Args)-1])
		r.Text = &name
	case commands.ReplyOn, commands.ReplyOff, commands.ReplySkip:
		if len(req.Args) == 3 {
			r.raw = replyOn
		} else {
			r.Effect = commands.StickyState // it is refused
		}
	}
	if cmd.inspect != nil {
		r = cmd.inspect(r, req.Args)
	}
	// A request must never make the upstream close a lane. The upstream's limits can be lower than
	// usual, but not lower than this.
	if len(r.raw) > maxShared {
		r.way = passthrough.Home
	}
	return r
}

// inspectSelect reads SELECT index.
func inspectSelect(r route, args [][]byte) route {
	if len(args) == 2 {
		if db, ok := resp.ParseInt(args[1]); ok { // otherwise it fails, perhaps only in EXEC
			r.Change = &upstream.Identity{DB: int(db)}
		}
	}
	return r
}

// inspectLogin reads AUTH and HELLO.
func inspectLogin(r route, args [][]byte) route {
	login := commands.ParseLogin(args)
	if r.Effect == commands.Auth && login.Password == nil {
		return r // it will be refused
	}
	r.Change = &upstream.Identity{
		User: string(login.User), Password: string(login.Password),
		LoggedIn: login.Password != nil, Proto: int(login.Proto),
	}
	if login.Name != nil {
		name := string(login.Name)
		r.Text = &name
	}
	return r
}

// inspectReplconf finds the two options that a replica, or anybody else, gets no reply to.
func inspectReplconf(r route, args [][]byte) route {
	for i := 1; i < len(args); i += 2 {
		if bytes.EqualFold(args[i], []byte("ack")) || bytes.EqualFold(args[i], []byte("getack")) {
			r.Effect = commands.Unanswered
		}
	}
	return r
}

// maxPause bounds what is made of a pause's length, ms: as long as a Duration can be.
const maxPause = int64(math.MaxInt64 / time.Millisecond)

// inspectPause reads CLIENT PAUSE ms WRITE.
func inspectPause(r route, args [][]byte) route {
	if len(args) == 4 && strings.EqualFold(string(args[3]), "write") {
		ms, _ := resp.ParseInt(args[2])
		r.Effect, r.Count = commands.Pauses, int(max(0, min(ms, maxPause)))
	}
	return r
}

// replyOn goes upstream in the place of all three forms of CLIENT REPLY: see
// passthrough.Pipe.Relay.
var replyOn = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON")

// inspectRead is for XREAD and XREADGROUP, which block if they say so. It doesn't matter where they
// say it: a group, a consumer and a stream can have any name, also BLOCK, and one that goes by the
// home for nothing is better than one that a lane waits for.
func inspectRead(r route, args [][]byte) route {
	for _, arg := range args[1:] {
		if bytes.EqualFold(arg, []byte("block")) {
			r.way = passthrough.Home
		}
	}
	return r
}
