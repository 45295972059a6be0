package foreign

import (
	"crypto/sha1"
	"encoding/hex"
	"hash/maphash"
	"regexp"
	"strings"
	"sync"
)

// Shape is what a script does to the lock at its first key, as far as its text shows.
type Shape struct {
	Does
	Seconds bool // its TTL is in seconds, not ms
}

// Does is what a script does to a lock.
type Does uint8

const (
	// Unknown scripts have not been read, or do nothing that a lock's script does.
	Unknown Does = iota
	// Takes answers OK or a number greater than 0 if it has taken the lock.
	Takes
	// TakesZero answers 0 if it has taken the lock.
	TakesZero
	// TakesHash is Redisson's: null if it has taken the lock, otherwise the holder's TTL.
	TakesHash
	// Extends gives its holder more time.
	Extends
	// Frees releases the lock of the caller.
	Frees
)

// maxScript bounds the scripts that are read, bytes. Those of lock libraries have less than 4 KiB.
const maxScript = 16 << 10

// calls is what one script calls, by the command's name in lower case: "set" and so on. Options and
// comparisons that matter are in it, too.
type calls map[string]bool

func (c calls) any(names ...string) bool {
	for _, name := range names {
		if c[name] {
			return true
		}
	}
	return false
}

// ShapeOf reads a script.
func ShapeOf(source string) Shape {
	if len(source) > maxScript {
		return Shape{}
	}
	c := callsIn(source)
	ms := c.any("px", "pxat", "psetex", "pexpire", "pexpireat")
	does := c.does()
	if does == Takes && c["~zero"] {
		does = TakesZero
	}
	return Shape{does, !ms}
}

// does judges by the calls.
func (c calls) does() Does {
	expires := c.any("px", "ex", "pxat", "exat", "psetex", "setex", "expire", "pexpire", "expireat",
		"pexpireat")
	// A lock's script finds out whether the lock is free, or the caller's.
	free := c.any("nx", "setnx", "msetnx", "exists", "hexists", "zcard", "~free")
	own := c.any("get", "mget", "getrange", "hget", "hexists", "zscore")
	puts := c.any("set", "setnx", "msetnx", "psetex", "setex", "hset", "hsetnx", "hincrby",
		"zadd")
	removes := c.any("del", "unlink", "hdel", "zrem", "delex", "delifeq")
	switch {
	case c["getset"] && !expires, c["zadd"] && !c["zscore"],
		c["hset"] && c.any("hmget", "hgetall"):
		return Unknown // a timestamp's recipe, a limiter, a counter
	case c["~minus"] && c["hincrby"]:
		return Frees
	case puts && expires && c.any("hincrby", "hset", "hsetnx") && free:
		if c["hincrby"] && c.any("pttl", "ttl") {
			return TakesHash
		}
		return Takes
	case puts && expires && c["zadd"]: // taking it removes the expired holders first
		if c.any("zcard", "zcount", "zremrangebyscore") {
			return Takes
		}
		return Extends
	case puts && expires && (free || c.any("pexpire", "expire") && own && c.any("set")):
		return Takes
	case puts && expires && own && !removes:
		return Extends
	case removes && (own || !puts):
		return Frees
	case expires && own && !puts:
		return Extends
	}
	return Unknown
}

// callsIn collects the calls in a Lua text, without what is in comments.
func callsIn(source string) calls {
	c := calls{}
	source = strings.ToLower(withoutComments(source))
	for rest := source; ; {
		_, after, found := strings.Cut(rest, "call")
		if !found {
			break
		}
		rest = after
		args := strings.TrimLeft(after, " \t\r\n(")
		name, args, ok := quoted(args)
		if !ok {
			continue
		}
		c[name] = true
		if end := strings.IndexByte(args, '\n'); end >= 0 && strings.IndexByte(args, ')') < end {
			args = args[:end]
		}
		addOptions(c, name, args)
		switch name {
		case "set", "setex", "psetex", "expire", "pexpire", "expireat", "pexpireat":
			c["~zero"] = answersZero(source, len(source)-len(after))
		}
	}
	for _, sign := range []string{"== false", "==false", "== nil", "==nil", "if not ", "if (not "} {
		c["~free"] = c["~free"] || strings.Contains(source, sign)
	}
	return c
}

var (
	ifWord   = regexp.MustCompile(`\b(else)?if\b`)
	negation = regexp.MustCompile(`\b(not|false|nil)\b|== *0|~=`)
	zero     = regexp.MustCompile(`^return[\s(]*0\b`)
	returned = regexp.MustCompile(`return[\s(]+(redis\.)?p?call$`)
)

// answersZero reports whether a script, in lower case, answers 0 when a call has set the lock's
// TTL. The call's name ends before at.
func answersZero(source string, at int) bool {
	answer := at + strings.Index(source[at:], "return")
	if answer < at || !zero.MatchString(source[answer:]) || returned.MatchString(source[:at]) ||
		strings.Contains(source[at:answer], "else") {
		return false
	}
	ifs := ifWord.FindAllStringIndex(source[:answer], -1)
	if len(ifs) == 0 {
		return true
	}
	begin := ifs[len(ifs)-1][0]
	condition, _, _ := strings.Cut(source[begin:answer], "then")
	// A condition before the call says nothing about its result.
	return begin+len(condition) < at || !negation.MatchString(condition)
}

// addOptions adds the options that stand among the arguments of a call.
func addOptions(c calls, name, args string) {
	if end := strings.Index(args, "call"); end >= 0 {
		args = args[:end]
	}
	c["~minus"] = c["~minus"] || name == "hincrby" && strings.Contains(args, "-1")
	if name != "set" {
		return
	}
	for len(args) > 0 {
		at := strings.IndexAny(args, `'"`)
		if at < 0 {
			return
		}
		word, rest, ok := quoted(args[at:])
		if !ok {
			return
		}
		switch word {
		case "nx", "px", "ex", "pxat", "exat", "xx":
			c[word] = true
		}
		args = rest
	}
}

// quoted is the word in quotes with which a text begins.
func quoted(text string) (word, rest string, ok bool) {
	if text == "" || text[0] != '\'' && text[0] != '"' {
		return "", text, false
	}
	end := strings.IndexByte(text[1:], text[0])
	if end < 0 {
		return "", text, false
	}
	return text[1 : end+1], text[end+2:], true
}

// withoutComments is a Lua text without its comments.
func withoutComments(source string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(source, "--")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		end := "\n"
		if strings.HasPrefix(after, "[[") {
			end = "]]"
		}
		_, source, found = strings.Cut(after, end)
		out.WriteByte('\n')
		if !found {
			return out.String()
		}
	}
}

// maxShapes bounds the scripts that are remembered.
const maxShapes = 1024

// Shapes remembers the shapes of scripts that were relayed.
type Shapes struct {
	seed   maphash.Seed
	mu     sync.RWMutex
	byHash map[string]Shape // guarded by mu; by SHA-1 in lower case
	byText map[uint64]Shape // guarded by mu; by a hash that is cheaper
}

// NewShapes returns Shapes that knows no script yet.
func NewShapes() *Shapes {
	return &Shapes{seed: maphash.MakeSeed(), byHash: map[string]Shape{}, byText: map[uint64]Shape{}}
}

// OfText is the shape of a script. OfHash knows the script from then on.
func (s *Shapes) OfText(source []byte) Shape {
	if len(source) > maxScript {
		return Shape{}
	}
	key := maphash.Bytes(s.seed, source)
	s.mu.RLock()
	shape, known := s.byText[key]
	s.mu.RUnlock()
	if known {
		return shape
	}
	shape = ShapeOf(string(source))
	sum := sha1.Sum(source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byText) >= maxShapes { // those in use are soon known again
		clear(s.byText)
		clear(s.byHash)
	}
	s.byText[key], s.byHash[hex.EncodeToString(sum[:])] = shape, shape
	return shape
}

// OfHash is the shape of a script that EVALSHA names. isKnown is false for one that was not
// relayed, and is no library's.
func (s *Shapes) OfHash(sha []byte) (shape Shape, isKnown bool) {
	var lower [2 * sha1.Size]byte
	if len(sha) != len(lower) {
		return Shape{}, false
	}
	for i, b := range sha {
		if b >= 'A' && b <= 'F' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	shape, passed := s.byHash[string(lower[:])]
	if !passed {
		shape, passed = known[string(lower[:])]
	}
	return shape, passed
}
