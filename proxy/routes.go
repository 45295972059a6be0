package proxy

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// route says how one request goes to the upstream.
type route struct {
	passthrough.Expect
	raw []byte // what is sent: the request itself, mostly
	way passthrough.Way
}

// maxShared is how long a request may be that goes by a connection that others use too, bytes.
const maxShared = 64 << 10

// routeOf decides it by the table. It is pure: no I/O.
func routeOf(cmd *command, req resp.Request) route {
	r := route{Expect: passthrough.Expect{Effect: cmd.effect, Count: len(req.Args) - 1}, raw: req.Raw, way: cmd.way}
	if cmd.identity != nil {
		r.Change, r.Text = cmd.identity(req.Args)
	}
	if cmd.inspect != nil {
		r = cmd.inspect(r, req.Args)
	}
	// What one client sends must never make the upstream close what others use: it may have set its limits lower, but not below these.
	if len(r.raw) > maxShared {
		r.way = passthrough.Own
	}
	if r.way != passthrough.Own && req.Inline {
		r.raw = resp.AppendCommand(nil, req.Args...)
	}
	return r
}

// selectIdentity reads SELECT index.
func selectIdentity(args [][]byte) (*passthrough.Identity, *string) {
	if len(args) != 2 {
		return nil, nil
	}
	db, ok := resp.ParseInt(args[1])
	if !ok {
		return nil, nil // queued in a transaction, it fails later
	}
	return &passthrough.Identity{DB: int(db)}, nil
}

// authIdentity reads AUTH [user] password.
func authIdentity(args [][]byte) (*passthrough.Identity, *string) {
	switch len(args) {
	case 2:
		return &passthrough.Identity{Password: string(args[1]), LoggedIn: true}, nil
	case 3:
		return &passthrough.Identity{User: string(args[1]), Password: string(args[2]), LoggedIn: true}, nil
	}
	return nil, nil
}

// helloIdentity reads HELLO [version [AUTH user password] [SETNAME name]].
func helloIdentity(args [][]byte) (id *passthrough.Identity, name *string) {
	id = &passthrough.Identity{}
	if len(args) < 2 {
		return id, nil
	}
	id.Proto = helloProto(args[1])
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			id.User, id.Password, id.LoggedIn = string(args[i+1]), string(args[i+2]), true
			i += 2
		case option == "setname" && i+1 < len(args):
			name = text(args[i+1])
			i++
		}
	}
	return id, name
}

func helloProto(arg []byte) int {
	version, _ := resp.ParseInt(arg)
	return int(version)
}

func text(b []byte) *string {
	s := string(b)
	return &s
}

// inspectReplconf finds the two options that a replica, or anybody else, gets no reply to.
func inspectReplconf(r route, args [][]byte) route {
	for i := 1; i < len(args); i += 2 {
		if bytes.EqualFold(args[i], []byte("ack")) || bytes.EqualFold(args[i], []byte("getack")) {
			r.Effect = passthrough.Unanswered
		}
	}
	return r
}

// replyOn goes upstream in the place of all three forms of CLIENT REPLY: see passthrough.Pipe.Relay.
var replyOn = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON")

// inspectClient knows the subcommands that say what is done with replies, and those by which clients introduce themselves, which
// are followed: another connection is told the same; and those that leave nothing on the connection. The others are about the connection
// itself, or make it known by its number.
func inspectClient(r route, args [][]byte) route {
	if len(args) < 2 {
		return r
	}
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "help":
		r.Effect, r.way = passthrough.NoEffect, passthrough.Shared
	case sub == "pause" && len(args) == 4 && strings.EqualFold(string(args[3]), "write"):
		r.Effect, r.Count = passthrough.Pauses, pauseMillis(args[2])
	case sub == "unpause":
		r.Effect = passthrough.Unpauses
	case sub == "id" || sub == "info" || sub == "list":
		r.Effect = passthrough.Known
	case slices.Contains(clientLeavesNothing, sub):
		r.Effect = passthrough.NoEffect
	case sub == "tracking" && len(args) > 2 && strings.EqualFold(string(args[2]), "on"):
		r.Effect = passthrough.TrackingOn
	case sub == "tracking" && len(args) > 2 && strings.EqualFold(string(args[2]), "off"):
		r.Effect = passthrough.TrackingOff
	case sub == "setname" && len(args) == 3:
		r.Effect, r.Text = passthrough.SetName, text(args[2])
	case sub == "setinfo" && len(args) == 4 && strings.EqualFold(string(args[2]), "lib-name"):
		r.Effect, r.Text = passthrough.SetLibName, text(args[3])
	case sub == "setinfo" && len(args) == 4 && strings.EqualFold(string(args[2]), "lib-ver"):
		r.Effect, r.Text = passthrough.SetLibVer, text(args[3])
	case sub == "setinfo":
		r.Effect = passthrough.NoEffect
	case sub == "reply" && len(args) == 3:
		r = inspectReply(r, args[2])
	}
	return r
}

// clientLeavesNothing are subcommands of CLIENT that are about other connections, or tell of this one what another that is set up so
// would tell.
var clientLeavesNothing = []string{"caching", "getname", "getredir", "kill", "pause", "trackinginfo", "unblock"}

// maxPause bounds what is made of a pause's length, ms: as long as a Duration can be.
const maxPause = int64(math.MaxInt64 / time.Millisecond)

func pauseMillis(arg []byte) int {
	n, _ := resp.ParseInt(arg)
	return int(max(0, min(n, maxPause)))
}

func inspectReply(r route, how []byte) route {
	switch strings.ToLower(string(how)) {
	case "on":
		r.Effect, r.raw = passthrough.ReplyOn, replyOn
	case "off":
		r.Effect, r.raw = passthrough.ReplyOff, replyOn
	case "skip":
		r.Effect, r.raw = passthrough.ReplySkip, replyOn
	}
	return r
}

// inspectScript is for SCRIPT and FUNCTION: KILL must not stand behind the script that it is to kill, and DEBUG changes the connection.
func inspectScript(r route, args [][]byte) route {
	if len(args) < 2 {
		return r
	}
	switch strings.ToLower(string(args[1])) {
	case "kill":
		r.way = passthrough.Own
	case "debug":
		r.way, r.Effect = passthrough.Own, passthrough.Stays
	}
	return r
}

// inspectRead is for XREAD and XREADGROUP, which block if they say so. It doesn't matter where: a group, a consumer and a stream may be
// named by any word, STREAMS and BLOCK too, and a connection too many is better than one that others wait for.
func inspectRead(r route, args [][]byte) route {
	for _, arg := range args[1:] {
		if bytes.EqualFold(arg, []byte("block")) {
			r.way = passthrough.Own
		}
	}
	return r
}
