package proxy

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"slices"
	"strings"

	"lockproxy/internal/resp"
)

// redisDocs is what Redis 7.0 answers to COMMAND DOCS in RESP3, without histories and complexities,
// compressed. It stands in for upstreams that don't know COMMAND DOCS, so that redis-cli hints the
// lock commands there, and still all others. TestRedisDocs writes it.
//
//go:embed command_docs.resp.gz
var redisDocs []byte

// withoutDocs makes the answer to COMMAND DOCS where the upstream doesn't know it.
func (q *commandQuery) withoutDocs(raw []byte) []byte {
	if bytes.HasPrefix(raw, []byte("-NOPERM")) {
		return raw
	}
	var elems [][]byte
	known := readRedisDocs()
	for i := 0; i+1 < len(known); i += 2 {
		if q.asksDocsOf(bulkText(known[i])) {
			elems = append(elems, known[i], known[i+1])
		}
	}
	answer := q.merge(nil, '%', elems)
	if q.proto == 2 {
		answer = withArrays(answer)
	}
	return answer
}

// asksDocsOf reports whether COMMAND DOCS is about all commands, or names this one.
func (q *commandQuery) asksDocsOf(name string) bool {
	return len(q.args) == 2 || slices.ContainsFunc(q.args[2:], func(asked []byte) bool {
		return strings.EqualFold(string(asked), name)
	})
}

// readRedisDocs returns the names and their docs in turn. It panics if the embedded file is broken.
func readRedisDocs() [][]byte {
	var raw []byte
	unzip, err := gzip.NewReader(bytes.NewReader(redisDocs))
	if err == nil {
		raw, err = io.ReadAll(unzip)
	}
	_, docs, parseErr := resp.Elements(raw)
	if err != nil || parseErr != nil {
		panic("command_docs.resp.gz is broken")
	}
	return docs
}

// withArrays makes flat arrays of all maps and sets in a value, as RESP2 has them.
func withArrays(raw []byte) []byte {
	_, elems, err := resp.Elements(raw)
	if err != nil { // it is no aggregate
		return raw
	}
	for i, elem := range elems {
		elems[i] = withArrays(elem)
	}
	return resp.AppendAggregate(nil, '*', elems)
}
