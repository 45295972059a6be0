package cluster

// The settings of a client's connection hold for those to all nodes: see set.go.

import (
	"slices"
	"strings"

	"lockproxy/internal/commands"
)

// settings is what a client has set, as far as Redis has accepted it. It is never changed in place.
type settings struct {
	proto    int       // of the replies
	tracking bool      // CLIENT TRACKING is on
	list     []setting // what differs from a new connection, in the order in which it is sent
}

// setting is one request of the client's.
type setting struct {
	name  string // of the command
	words []string
}

// newSettings is what a Conn begins with.
func newSettings(setup [][]string) settings {
	s := settings{proto: 2}
	for _, words := range setup {
		args := arguments(words)
		s = s.with(lookup(args), args)
	}
	return s
}

func arguments(words []string) (args [][]byte) {
	for _, word := range words {
		args = append(args, []byte(word))
	}
	return args
}

// requests are what a new connection is sent. A login is the first: a server can leave out the
// refusal of one that comes behind other requests.
func (s settings) requests() (list [][]string) {
	for _, one := range s.list {
		list = append(list, one.words)
	}
	return list
}

// login is the part of requests that logs in.
func (s settings) login() (list [][]string) {
	if len(s.list) > 0 && s.list[0].name == "auth" {
		list = append(list, s.list[0].words)
	}
	return list
}

func (s settings) equal(other settings) bool {
	return s.proto == other.proto && s.tracking == other.tracking && slices.EqualFunc(s.list,
		other.list, func(a, b setting) bool { return slices.Equal(a.words, b.words) })
}

// with is s after a request of cmd that was accepted.
func (s settings) with(cmd *command, args [][]byte) settings {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = string(arg)
	}
	name, last := cmd.Name, words[len(words)-1]
	switch cmd.Effect {
	case commands.Auth, commands.Hello:
		return s.loggedIn(commands.ParseLogin(args))
	case commands.Reset:
		s.list = slices.DeleteFunc(slices.Clone(s.list), func(old setting) bool {
			return !lookup(arguments(old.words)).Stays
		})
		return settings{proto: 2, list: s.list}
	case commands.Select:
		return s.put(name, words, last == "0")
	case commands.SetName, commands.SetLibName, commands.SetLibVer:
		return s.put(name, words, last == "")
	case commands.TrackingOn: // one with PREFIX adds to those before it
		s.tracking = true
		return s.add(name, words)
	case commands.TrackingOff:
		s.tracking = false
		return s.put("client|tracking|on", nil, true)
	}
	if name == "client|capa" {
		return s.add(name, words)
	}
	return s.put(name, words, strings.EqualFold(last, "off"))
}

// loggedIn is s after AUTH or HELLO.
func (s settings) loggedIn(asked commands.Login) settings {
	switch {
	case asked.User != nil:
		s = s.put("auth", []string{"AUTH", string(asked.User), string(asked.Password)}, false)
	case asked.Password != nil:
		s = s.put("auth", []string{"AUTH", string(asked.Password)}, false)
	}
	if asked.Proto == 2 || asked.Proto == 3 {
		s.proto = int(asked.Proto)
		s = s.put("hello", []string{"HELLO", "3"}, s.proto == 2)
	}
	if asked.Name != nil {
		name := string(asked.Name)
		s = s.put("client|setname", []string{"CLIENT", "SETNAME", name}, name == "")
	}
	return s
}

// put is s with a request in place of one with the same name. As a new connection is, it needs
// none.
func (s settings) put(name string, words []string, asNew bool) settings {
	s.list = slices.Clone(s.list)
	at := slices.IndexFunc(s.list, func(old setting) bool { return old.name == name })
	switch {
	case asNew:
		s.list = slices.DeleteFunc(s.list, func(old setting) bool { return old.name == name })
	case at >= 0:
		s.list[at].words = words
	case name == "auth":
		s.list = slices.Insert(s.list, 0, setting{name, words})
	default:
		s.list = append(s.list, setting{name, words})
	}
	return s
}

// add is s with one more request behind others of that name.
func (s settings) add(name string, words []string) settings {
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(old setting) bool {
		return old.name == name && slices.Equal(old.words, words)
	})
	s.list = append(s.list, setting{name, words})
	return s
}
