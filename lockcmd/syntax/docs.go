package syntax

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"lockproxy/internal/resp"
)

// docsJSON has for each of Specs the parts of its entry in COMMAND INFO that are not in the Spec,
// and "doc", its value in COMMAND DOCS, as https://redis.io/docs/latest/commands/command-docs has
// it. The categories are for COMMAND LIST; the script decides what a user may do.
//
//go:embed docs.json
var docsJSON string

// docs is docsJSON as a reply.
var docs = sync.OnceValue(func() docValue {
	return parseDocs(json.NewDecoder(strings.NewReader(docsJSON)), "")
})

// docValue is a part of docsJSON.
type docValue struct{ resp.Value }

// parseDocs reads the next value, which has a name: lists are sets, except arguments, and flags and
// categories are statuses, as Redis has them.
func parseDocs(d *json.Decoder, name string) docValue {
	status := name == "flags" || name == "categories"
	token, err := d.Token()
	if err != nil {
		panic(err) // it is embedded
	}
	switch t := token.(type) {
	case float64:
		return docValue{resp.Int(int64(t))}
	case string:
		return docValue{resp.Bulk(t)}
	}
	v := resp.Value{Type: '~'}
	switch {
	case token == json.Delim('{'):
		v.Type = '%'
	case name == "arguments":
		v.Type = '*'
	}
	for d.More() {
		of := ""
		if n := len(v.Elems); v.Type == '%' && n%2 == 1 {
			of = string(v.Elems[n-1].Text)
		}
		elem := parseDocs(d, of).Value
		if status {
			elem.Type = '+'
		}
		v.Elems = append(v.Elems, elem)
	}
	d.Token() // the end of the map or list
	return docValue{v}
}

// get is the value of a name in a map, empty if the map lacks it.
func (v docValue) get(name string) docValue {
	for i := 0; i < len(v.Elems); i += 2 {
		if string(v.Elems[i].Text) == name {
			return docValue{v.Elems[i+1]}
		}
	}
	return docValue{}
}

// text is the text of a name in a map, "" if the map lacks it.
func (v docValue) text(name string) string { return string(v.get(name).Text) }

// has reports whether the list of a name in a map has an element.
func (v docValue) has(name, element string) bool {
	return slices.ContainsFunc(v.get(name).Elems, func(e resp.Value) bool {
		return string(e.Text) == element
	})
}

// Arity is the number of arguments with the name; negative if there may be more.
func (c *Spec) Arity() int {
	if c.MinArgs == c.MaxArgs {
		return c.MinArgs
	}
	return -c.MinArgs
}

// InCategory reports whether the command is in an ACL category.
func (c *Spec) InCategory(name string) bool {
	return docs().get(c.Name).has("categories", "@"+strings.ToLower(name))
}

// KeysOf returns the keys of a request, which begins with the name; nil if their number is wrong.
// It leaves out the keys of a command that FENCE runs.
func (c *Spec) KeysOf(args [][]byte) [][]byte {
	if !c.numbersKeys() {
		return args[1:2]
	}
	keys, _, _ := ParseKeys(args[2:])
	return keys
}

// numbersKeys reports whether the keys are behind their number, the second argument.
func (c *Spec) numbersKeys() bool { return c.Name == "lockall" || c.Name == "unlockall" }

// KeyFlags are the flags of its keys in COMMAND GETKEYSANDFLAGS, nil if it has none.
func (c *Spec) KeyFlags() (flags []string) {
	if keys := docs().get(c.Name).get("keys"); len(keys.Elems) > 0 {
		for _, flag := range (docValue{keys.Elems[0]}).get("flags").Elems {
			flags = append(flags, string(flag.Text))
		}
	}
	return flags
}

// RunsAnother reports whether the command's third argument is another command, with its own keys.
func (c *Spec) RunsAnother() bool { return c.Name == "fence" }

// InfoFields is how many fields COMMAND INFO has since Redis 7.0. 6.0 had 7, older ones 6.
const InfoFields = 10

// Info is the first fields of the command's entry in COMMAND INFO.
func (c *Spec) Info(fields int) resp.Value {
	d := docs().get(c.Name)
	first := resp.Int(min(1, len(d.get("keys").Elems)))
	if c.numbersKeys() {
		first.Int = 0
	}
	return resp.Array([]resp.Value{resp.Bulk(c.Name), resp.Int(c.Arity()),
		d.get("flags").Value, first, first, first, // the last one is the step
		d.get("categories").Value, d.get("tips").Value, d.get("keys").Value,
		{Type: '~'}, // subcommands
	}[:fields]...)
}

// Doc is the command's value in the map of COMMAND DOCS.
func (c *Spec) Doc() resp.Value { return docs().get(c.Name).get("doc").Value }
