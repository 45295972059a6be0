package proxy

import (
	"bytes"
	"slices"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/syntax"
)

// answerCommand answers COMMAND with what the upstream says of its commands and, in their places
// among them, the lock commands. An error of the upstream is relayed: of a user who may not ask,
// or of a version that doesn't know the subcommand.
func answerCommand(x *exchange, req resp.Request) (done bool) {
	q := newCommandQuery(req.Args)
	return q != nil && x.answerAfter(func(raw []byte, proto int) []byte {
		q.proto = proto
		return q.answer(raw)
	}, q.ask)
}

// maxNamed is how many arguments a request has at most that is answered here: the answer is kept in
// memory. There are half as many commands.
const maxNamed = 1024

// newCommandQuery returns nil for a request that the upstream answers alone.
func newCommandQuery(args [][]byte) *commandQuery {
	q := &commandQuery{args: args, ask: args}
	sub := ""
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	switch {
	case len(args) > maxNamed:
		return nil
	case len(args) == 1, sub == "info" && len(args) == 2:
		q.merge = q.allInfos
	case sub == "info":
		q.ask = append(slices.Clone(args), []byte("get")) // to see how many fields an entry has
		q.merge = q.infos
	case sub == "docs" && len(args) == 2:
		q.merge = q.allDocs
	case sub == "docs" && q.namesLock(args[2:]):
		q.merge = q.docs
	case sub == "count" && len(args) == 2:
		q.ask, q.merge = args[:1], q.count
	case sub == "list" && (len(args) == 2 || len(args) == 5):
		q.merge = q.list
	case (sub == "getkeys" || sub == "getkeysandflags") && len(args) > 2 && q.namesLock(args[2:3]):
		q.keys(sub == "getkeysandflags")
	default:
		return nil
	}
	if sub == "docs" {
		q.refused = q.withoutDocs
	}
	return q
}

func (q *commandQuery) namesLock(names [][]byte) bool {
	return slices.ContainsFunc(names, func(name []byte) bool { return lookup(name).lock != nil })
}

// answer makes the client's answer out of the upstream's. The embedded store answers its list of
// commands to each subcommand.
func (q *commandQuery) answer(raw []byte) []byte {
	kind, elems, err := resp.Elements(raw)
	plain := len(q.ask) == 1 || strings.EqualFold(string(q.ask[1]), "info")
	if !plain && len(elems) > 0 && isEntry(elems[0]) {
		if strings.EqualFold(string(q.args[1]), "list") && len(q.args) == 2 {
			return q.merge(raw, kind, namesIn(elems))
		}
		raw = errNoSubcommands
	}
	switch {
	case (raw[0] == '-' || raw[0] == '!') && q.refused != nil && !bytes.HasPrefix(raw, noAuthCode):
		return q.refused(raw)
	case err != nil || raw[0] == '-':
		return raw
	}
	return q.merge(raw, kind, elems)
}

// isEntry reports whether an answer's element is a command's entry: name, arity and more.
func isEntry(elem []byte) bool {
	kind, parts, err := resp.Elements(elem)
	return err == nil && kind == '*' && len(parts) > 2 && parts[1][0] == ':'
}

// namesIn are the names in commands' entries.
func namesIn(entries [][]byte) (list [][]byte) {
	for _, entry := range entries {
		if _, parts, err := resp.Elements(entry); err == nil && len(parts) > 0 {
			list = append(list, parts[0])
		}
	}
	return list
}

// count answers COMMAND COUNT from the answer to COMMAND: the upstream may have lock commands
// itself, as another lockproxy does.
func (q *commandQuery) count(_ []byte, _ byte, entries [][]byte) []byte {
	n := len(withoutLocks(entries)) + len(syntax.Specs)
	return q.encode(resp.Int(n))
}

// withoutLocks leaves out of commands' entries those by the name of a lock command, since they
// can't be reached.
func withoutLocks(entries [][]byte) [][]byte {
	return slices.DeleteFunc(entries, func(entry []byte) bool {
		return slices.ContainsFunc(namesIn([][]byte{entry}), isLockName)
	})
}

// allInfos adds to COMMAND.
func (q *commandQuery) allInfos(_ []byte, kind byte, elems [][]byte) []byte {
	fields := infoFields(elems)
	elems = withoutLocks(elems)
	for i := range syntax.Specs {
		elems = append(elems, q.encode(syntax.Specs[i].Info(fields)))
	}
	return resp.AppendAggregate(nil, kind, elems)
}

// infos fills in COMMAND INFO name …, whose answer has one element for each name, and here one
// more. The embedded store answers with all its commands, among which those are looked up.
func (q *commandQuery) infos(_ []byte, kind byte, elems [][]byte) []byte {
	names := q.args[2:]
	fields := infoFields(elems)
	if len(elems) != len(names)+1 {
		elems = q.entriesOf(names, elems)
	}
	for i, name := range names {
		if spec := lookup(name).lock; spec != nil {
			elems[i] = q.encode(spec.Info(fields))
		}
	}
	return resp.AppendAggregate(nil, kind, elems[:len(names)])
}

// entriesOf are the entries of commands, in the order of names; null for one that is not among them.
func (q *commandQuery) entriesOf(names, entries [][]byte) [][]byte {
	null := []byte("*-1\r\n")
	if q.proto == 3 {
		null = []byte("_\r\n")
	}
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = null
		for _, entry := range entries {
			if of := namesIn([][]byte{entry}); len(of) == 1 &&
				strings.EqualFold(bulkText(of[0]), string(name)) {
				list[i] = entry
			}
		}
	}
	return list
}

// infoFields is how many fields the upstream's version gives to a command's entry.
func infoFields(entries [][]byte) int {
	for _, entry := range entries {
		if _, parts, err := resp.Elements(entry); err == nil && len(parts) > 0 {
			return min(len(parts), syntax.InfoFields)
		}
	}
	return syntax.InfoFields
}

// allDocs adds to COMMAND DOCS.
func (q *commandQuery) allDocs(_ []byte, kind byte, elems [][]byte) []byte {
	var others [][]byte
	for i := 0; i+1 < len(elems); i += 2 {
		if !isLockName(elems[i]) {
			others = append(others, elems[i], elems[i+1])
		}
	}
	for i := range syntax.Specs {
		others = q.appendDoc(others, &syntax.Specs[i])
	}
	return resp.AppendAggregate(nil, kind, others)
}

// docs fills in COMMAND DOCS name …, whose answer has the known among the names, in their order.
func (q *commandQuery) docs(_ []byte, kind byte, elems [][]byte) []byte {
	var mixed [][]byte
	for _, name := range q.args[2:] {
		if spec := lookup(name).lock; spec != nil {
			mixed = q.appendDoc(mixed, spec)
			if len(elems) > 1 && isLockName(elems[0]) {
				elems = elems[2:]
			}
		} else if len(elems) > 1 && strings.EqualFold(bulkText(elems[0]), string(name)) {
			mixed = append(mixed, elems[0], elems[1])
			elems = elems[2:]
		}
	}
	return resp.AppendAggregate(nil, kind, append(mixed, elems...))
}

func (q *commandQuery) appendDoc(pairs [][]byte, spec *syntax.Spec) [][]byte {
	return append(pairs, q.encode(resp.Bulk(spec.Name)), q.encode(spec.Doc()))
}

// list adds to COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value].
func (q *commandQuery) list(_ []byte, kind byte, elems [][]byte) []byte {
	elems = slices.DeleteFunc(elems, isLockName)
	for i := range syntax.Specs {
		if spec := &syntax.Specs[i]; q.listed(spec) {
			elems = append(elems, q.encode(resp.Bulk(spec.Name)))
		}
	}
	return resp.AppendAggregate(nil, kind, elems)
}

func (q *commandQuery) listed(spec *syntax.Spec) bool {
	if len(q.args) < 5 {
		return true
	}
	value := string(q.args[4])
	switch strings.ToLower(string(q.args[3])) {
	case "aclcat":
		return spec.InCategory(value)
	case "pattern":
		return keyname.Match(strings.ToLower(value), spec.Name)
	}
	return false // of no module
}
