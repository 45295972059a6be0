package proxy

import (
	"bytes"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// command is what the proxy knows of one command: how to run it, if it is a lock command, or else what its reply does to
// the state of the connection. What isn't in the table is relayed and does nothing to it.
type command struct {
	lock   *lockcmd.Spec
	effect passthrough.Effect
	// identity fills in what the connection becomes once the command has succeeded.
	identity func(args [][]byte) *passthrough.Identity
	// inspect decides by the arguments, for commands whose subcommands differ.
	inspect func(req resp.Request) (passthrough.Effect, []byte)
	// introspect is for COMMAND, whose answer tells of the lock commands too.
	introspect bool
	// informs is for INFO, which has a section of the proxy's own.
	informs bool
	kind    Kind // as what it is counted
	// competes names the keys at which a client that doesn't know LOCK may be taking a lock.
	competes func(args [][]byte) [][]byte
}

// table is the one table of commands, by name in lower case.
var table = commandTable()

func commandTable() map[string]*command {
	t := map[string]*command{
		"multi":        {effect: passthrough.Multi},
		"exec":         {effect: passthrough.Exec},
		"discard":      {effect: passthrough.Discard},
		"watch":        {effect: passthrough.Watch},
		"unwatch":      {effect: passthrough.Unwatch},
		"select":       {effect: passthrough.Select, identity: selectIdentity},
		"auth":         {effect: passthrough.Auth, identity: authIdentity},
		"hello":        {effect: passthrough.Hello, identity: helloIdentity},
		"reset":        {effect: passthrough.Reset},
		"quit":         {effect: passthrough.Quit},
		"shutdown":     {effect: passthrough.Closes},
		"post":         {effect: passthrough.Closes}, // Redis closes: a browser was made to send it
		"host:":        {effect: passthrough.Closes},
		"subscribe":    {effect: passthrough.Subscribe},
		"psubscribe":   {effect: passthrough.PSubscribe},
		"ssubscribe":   {effect: passthrough.SSubscribe},
		"unsubscribe":  {effect: passthrough.Unsubscribe},
		"punsubscribe": {effect: passthrough.PUnsubscribe},
		"sunsubscribe": {effect: passthrough.SUnsubscribe},
		"monitor":      {effect: passthrough.Monitor},
		"sync":         {effect: passthrough.Replicate},
		"psync":        {effect: passthrough.Replicate},
		"client":       {inspect: inspectClient},
		"replconf":     {inspect: inspectReplconf},
		"command":      {introspect: true, kind: Introspects},
		"info":         {informs: true},
		"set":          {competes: setIfMissing},
		"setnx":        {competes: firstKey},
		"getset":       {competes: firstKey},
		"eval":         {competes: scriptKeys},
		"evalsha":      {competes: scriptKeys},
	}
	for i := range lockcmd.Specs {
		spec := &lockcmd.Specs[i]
		t[spec.Name] = &command{lock: spec, kind: kindOf(spec)}
	}
	return t
}

// plain is every command that isn't in the table.
var plain = &command{}

// maxCommandName is longer than any name in the table.
const maxCommandName = 16

func lookup(name []byte) *command {
	var lower [maxCommandName]byte
	if len(name) > maxCommandName {
		return plain
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	if cmd := table[string(lower[:len(name)])]; cmd != nil {
		return cmd
	}
	return plain
}

// whole reports whether the command must be seen whole before it can be passed on.
func (c *command) whole() bool {
	return c.lock != nil || c.identity != nil || c.inspect != nil || c.introspect || c.informs
}

// fenceable reports whether a command may run within a transaction of the proxy's own: whether it does nothing to the connection.
func (c *command) fenceable() bool {
	return c.lock == nil && c.effect == passthrough.NoEffect && c.inspect == nil
}

func firstKey(args [][]byte) [][]byte {
	if len(args) < 2 {
		return nil
	}
	return args[1:2]
}

// setIfMissing reads SET key value … NX, which many libraries send for SETNX.
func setIfMissing(args [][]byte) [][]byte {
	for _, option := range args[min(3, len(args)):] {
		if bytes.EqualFold(option, []byte("nx")) {
			return args[1:2]
		}
	}
	return nil
}

// scriptKeys reads EVAL script numkeys key ….
func scriptKeys(args [][]byte) [][]byte {
	if len(args) < 4 {
		return nil
	}
	n, _ := resp.ParseInt(args[2])
	return args[3 : 3+max(0, min(int(n), len(args)-3))]
}

func selectIdentity(args [][]byte) *passthrough.Identity {
	if len(args) != 2 {
		return nil
	}
	db, ok := resp.ParseInt(args[1])
	if !ok {
		return nil // queued in a transaction, it fails later
	}
	return &passthrough.Identity{DB: int(db)}
}

func authIdentity(args [][]byte) *passthrough.Identity {
	switch len(args) {
	case 2:
		return &passthrough.Identity{Password: string(args[1]), LoggedIn: true}
	case 3:
		return &passthrough.Identity{User: string(args[1]), Password: string(args[2]), LoggedIn: true}
	}
	return nil
}

// helloIdentity reads HELLO [version [AUTH user password] [SETNAME name]].
func helloIdentity(args [][]byte) *passthrough.Identity {
	id := &passthrough.Identity{}
	if len(args) < 2 {
		return id
	}
	version, _ := resp.ParseInt(args[1])
	id.Proto = int(version)
	for i := 2; i+2 < len(args); i++ {
		if strings.EqualFold(string(args[i]), "auth") {
			id.User, id.Password, id.LoggedIn = string(args[i+1]), string(args[i+2]), true
			break
		}
		i++ // SETNAME's argument
	}
	return id
}

// inspectReplconf finds the two forms that a replica, or anybody else, gets no reply to.
func inspectReplconf(req resp.Request) (passthrough.Effect, []byte) {
	if len(req.Args) > 2 && (bytes.EqualFold(req.Args[1], []byte("ack")) || bytes.EqualFold(req.Args[1], []byte("getack"))) {
		return passthrough.Unanswered, req.Raw
	}
	return passthrough.NoEffect, req.Raw
}

// replyOn goes upstream in the place of all three forms of CLIENT REPLY: see passthrough.Pipe.Relay.
var replyOn = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON")

func inspectClient(req resp.Request) (passthrough.Effect, []byte) {
	if len(req.Args) != 3 || !bytes.EqualFold(req.Args[1], []byte("reply")) {
		return passthrough.NoEffect, req.Raw
	}
	switch strings.ToLower(string(req.Args[2])) {
	case "on":
		return passthrough.ReplyOn, replyOn
	case "off":
		return passthrough.ReplyOff, replyOn
	case "skip":
		return passthrough.ReplySkip, replyOn
	}
	return passthrough.NoEffect, req.Raw
}
