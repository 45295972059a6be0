package script

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// Request is one LOCK of a connection, as the lock record names it.
type Request struct {
	Key        string
	Timeout    time.Duration
	Connection string
	Number     string // of the request, within the connection
	Client     string // address
	Name       string // of the connection (CLIENT SETNAME); "" for none
	Session    bool
	Owner      string
	Note       string // why, for people; "" for none
	Shared     bool
	Limit      int64         // of a shared lock; 0 is none
	Longest    time.Duration // MAX, of a session lock; 0 is none

	Once  bool          // it is a ONCE: Key is the claim, whose holder makes a value
	Value string        // of ONCE: the value's key, which can be empty
	Early time.Duration // EARLY, of ONCE; 0 is none
}

// who is the client in the lock record: its address, its note, and its connection's name. It may
// have no blanks, so the note is in base64.
func (r Request) who() string {
	who := r.Client
	if r.Note != "" {
		who += noteMark + base64.RawURLEncoding.EncodeToString([]byte(r.Note))
	}
	if r.Name != "" {
		who += nameMark + r.Name
	}
	return who
}

// OwnerOrName is what people call the client by, if anything.
func (r Request) OwnerOrName() string { return cmp.Or(r.Owner, r.Name) }

// Who is a lock record's client.
type Who struct {
	Client string // address
	Name   string // of its connection, if it has one
	Note   string // why it has the lock, if it has said so
}

// SplitWho takes a lock record's client apart.
func SplitWho(text string) (who Who) {
	text, who.Name, _ = strings.Cut(text, nameMark)
	client, note, _ := strings.Cut(text, noteMark)
	who.Client = client
	if note, err := base64.RawURLEncoding.DecodeString(note); err == nil {
		who.Note = string(note)
	}
	return who
}

const (
	nameMark    = "|" // no address has one of these
	noteMark    = "!"
	maxConnName = 64 // bytes of a connection's name that a lock record keeps
)

// ConnName is a connection's name as a lock record can keep it: Redis allows no blanks in it.
func ConnName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return name[:min(len(name), maxConnName)]
}

// limitText is the limit, as requests.lua has it.
func (r Request) limitText() string {
	if !r.Shared {
		return "-"
	}
	return strconv.FormatInt(r.Limit, 10)
}

// earlyText is ARGV[5] of once.lua.
func (r Request) earlyText() string {
	if r.Early == 0 {
		return ""
	}
	return milliseconds(r.Early)
}

// Mode is LOCKINFO's name for the kind of lock.
func (r Request) Mode() string {
	if r.Shared {
		return "shared"
	}
	return "exclusive"
}

// listOf is a list of requests, as requests.lua takes it.
func listOf(requests ...Request) string {
	var room [256]byte
	list := room[:0]
	for _, r := range requests {
		list = r.appendTo(list)
	}
	return string(list)
}

// appendTo appends the request as an entry of listOf.
func (r Request) appendTo(list []byte) []byte {
	for _, field := range []string{
		milliseconds(r.Timeout), Flag(r.Session), r.Connection, r.Number, r.who(), r.limitText(),
		strconv.Itoa(len(r.Owner)),
	} {
		list = append(append(list, field...), ' ')
	}
	return append(list, r.Owner...)
}

// holderFields is the lock record from `session` on; see read.lua.
func (r Request) holderFields() string {
	return Flag(r.Session) + " held " + r.Connection + " " + r.Number + " " + r.who() +
		" -\n" + r.Owner
}

// Wrote reports whether a lock's record says that LOCK has written a value at the lock's key; see
// read.lua. A shared lock's record is no string.
func Wrote(record []byte, value string) bool {
	fields := strings.SplitN(string(record), " ", 5)
	return len(fields) == 5 && fields[0] == "v1" && fields[3] == value
}

// sharerFields is a holder in a shared lock's record from `session` on; see read.lua.
func (r Request) sharerFields() string {
	return Flag(r.Session) + " " + r.Connection + " " + r.Number + " " + r.who() + "\n" + r.Owner
}

func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
