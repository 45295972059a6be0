package proxy

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// maxShared is how long a request can be that goes by a connection that others use too, bytes.
const maxShared = 64 << 10

// routeOf returns what the upstream is sent for a request, and by which way, as the table says. It
// is pure: no I/O.
func routeOf(cmd *command, req resp.Request) passthrough.Request {
	cmd = cmd.of(req.Args)
	r := passthrough.Request{Raw: req.Raw, Way: cmd.way}
	if req.Inline { // the embedded store reads arrays only
		r.Raw = resp.AppendCommand(nil, req.Args...)
	}
	r.Effect, r.Count = cmd.Effect, len(req.Args)-1
	r.Blocks = cmd.Class == commands.Blocking
	switch r.Effect {
	case commands.SetName, commands.SetLibName, commands.SetLibVer:
		name := string(req.Args[len(req.Args)-1])
		r.Text = &name
	case commands.ReplyOn, commands.ReplyOff, commands.ReplySkip:
		if len(req.Args) == 3 {
			r.Raw = replyOn
		} else {
			r.Effect = commands.StickyState // it is refused
		}
	}
	if cmd.inspect != nil {
		r = cmd.inspect(r, req.Args)
	}
	// A request must never make the upstream close a lane. The upstream's limits can be lower than
	// usual, but not lower than this.
	if len(r.Raw) > maxShared || req.Loose {
		r.Way = passthrough.Home
	}
	return r
}

// inspectSelect reads SELECT index.
func inspectSelect(r passthrough.Request, args [][]byte) passthrough.Request {
	r.Way = passthrough.Home
	if len(args) == 2 {
		if db, ok := resp.ParseInt(args[1]); ok { // otherwise it fails, perhaps only in EXEC
			r.Change, r.Way = &upstream.Identity{DB: int(db)}, passthrough.Greets
		}
	}
	return r
}

// inspectLogin reads AUTH and HELLO.
func inspectLogin(r passthrough.Request, args [][]byte) passthrough.Request {
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
	if login.Password != nil {
		r.Way = passthrough.Home
		// AUTH password, AUTH user password, HELLO version AUTH user password: one that fails has
		// changed nothing. Up to Redis 7.0, HELLO with more can have set a name.
		if n := len(args); n == 2 || n == 3 || n == 5 {
			r.Way = passthrough.Login
		}
	}
	return r
}

// inspectReplconf finds the two options of REPLCONF that get no reply.
func inspectReplconf(r passthrough.Request, args [][]byte) passthrough.Request {
	for i := 1; i < len(args) && len(args)%2 == 1; i += 2 { // otherwise it is refused
		if bytes.EqualFold(args[i], []byte("ack")) || bytes.EqualFold(args[i], []byte("getack")) {
			r.Effect = commands.Unanswered
		}
	}
	return r
}

// maxPause is the longest pause that a Duration can hold, ms.
const maxPause = int64(math.MaxInt64 / time.Millisecond)

// inspectPause reads CLIENT PAUSE ms WRITE.
func inspectPause(r passthrough.Request, args [][]byte) passthrough.Request {
	if len(args) == 4 && strings.EqualFold(string(args[3]), "write") {
		ms, _ := resp.ParseInt(args[2])
		r.Effect, r.Count = commands.Pauses, int(max(0, min(ms, maxPause)))
	}
	return r
}

// inspectNumbers is for what shows the numbers of all connections.
func inspectNumbers(r passthrough.Request, _ [][]byte) passthrough.Request {
	r.Numbers = true
	return r
}

// inspectTracking reads CLIENT TRACKING ON … REDIRECT number. Redis goes on to send invalidations to
// the connection of that number, and says nothing if its client does not exist any more.
func inspectTracking(r passthrough.Request, args [][]byte) passthrough.Request {
	r.Numbers = slices.ContainsFunc(args[3:], func(arg []byte) bool {
		return bytes.EqualFold(arg, []byte("redirect"))
	})
	return r
}

// replyOn goes upstream in the place of all three forms of CLIENT REPLY: see
// passthrough.Pipe.Relay.
var replyOn = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON")

// inspectRead is for XREAD and XREADGROUP, which block if they say BLOCK. It accepts the word
// anywhere, though a group, a consumer or a stream can have that name: to go by the home for
// nothing is better than to have a lane wait.
func inspectRead(r passthrough.Request, args [][]byte) passthrough.Request {
	for _, arg := range args[1:] {
		if bytes.EqualFold(arg, []byte("block")) {
			r.Way, r.Blocks = passthrough.Home, true
		}
	}
	return r
}

// fenceable reports whether a request can run within a transaction of the proxy's own: whether it
// neither blocks nor does anything to the connection, as far as is known.
func fenceable(args [][]byte) bool {
	cmd := lookup(args[0])
	r := routeOf(cmd, resp.Request{Args: args})
	class := cmd.For(args).Class
	return class == commands.Other || class == commands.Occupying ||
		cmd.lock == nil && r.Effect == commands.NoEffect && r.Way != passthrough.Home &&
			!r.Numbers
}

func init() { table = commandTable() } // not in the declaration, since answers look commands up

func commandTable() []command {
	own := map[string]command{
		"select":             {inspect: inspectSelect},
		"auth":               {inspect: inspectLogin},
		"hello":              {inspect: inspectLogin},
		"client|pause":       {inspect: inspectPause},
		"client|list":        {inspect: inspectNumbers},
		"acl|log":            {inspect: inspectNumbers},
		"client|tracking|on": {inspect: inspectTracking},
		"client|unblock":     {answer: answerUnblock},
		"replconf":           {inspect: inspectReplconf},
		"wait":               {syncFirst: &syncing{[]string{"WAIT", "0", "0"}, publish}},
		"waitaof":            {syncFirst: &syncing{[]string{"WAITAOF", "0", "0", "0"}, swap}},
		"command":            {answer: answerCommand, kind: Introspects},
		"info":               {answer: answerInfo},
		"cluster":            {answer: answerCluster},
	}
	for i := range syntax.Specs {
		spec := &syntax.Specs[i]
		own[spec.Name] = command{lock: spec, kind: kindOf(spec)}
	}
	t := make([]command, len(commands.Rows))
	for i := range t {
		row := &commands.Rows[i]
		cmd := own[row.Name]
		delete(own, row.Name)
		cmd.Command, cmd.way = row, ways[row.Class]
		if row.Class == commands.MayBlock {
			cmd.inspect = inspectRead
		}
		t[i] = cmd
		for of := row.Of; of != nil; of = of.Of {
			if row.Class != of.Class || row.Effect != of.Effect || cmd.inspect != nil {
				t[of.ID].varies = true
			}
		}
	}
	for name := range own {
		panic("proxy: " + name + " is not in the table of commands")
	}
	return t
}
