package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

var updateDocs = flag.Bool("update-docs", false, "write command_docs.resp.gz again, from Redis")

// withoutHistory drops what redis-cli doesn't show as a hint.
func withoutHistory(raw []byte) []byte {
	kind, elems, err := resp.Elements(raw)
	if err != nil { // it is no aggregate
		return raw
	}
	var kept [][]byte
	for i := 0; i < len(elems); i++ {
		if name := bulkText(elems[i]); kind == '%' && i%2 == 0 &&
			(name == "history" || name == "complexity") {
			i++
			continue
		}
		kept = append(kept, withoutHistory(elems[i]))
	}
	return resp.AppendAggregate(nil, kind, kept)
}

// The documentation that replaces an older upstream's is Redis's own, for each command in it.
func TestRedisDocs(t *testing.T) {
	conn, err := net.Dial("tcp", testredis.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte("HELLO 3\r\nCOMMAND DOCS\r\nQUIT\r\n"))
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := wire.ReadReply(bufio.NewReader(bytes.NewReader(raw)), wire.RESP3)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.TrimSuffix(raw[len(hello):], []byte("+OK\r\n"))
	_, live, err := wire.Elements(string(raw))
	if err != nil || len(live) < 400 {
		t.Fatalf("%d elements, %v", len(live), err)
	}
	if *updateDocs {
		var file bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&file, gzip.BestCompression)
		zip.Write(withoutHistory(raw))
		zip.Close()
		if err := os.WriteFile("command_docs.resp.gz", file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	docs := readRedisDocs()
	if len(docs) < 400 || len(docs)%2 != 0 {
		t.Fatalf("%d elements", len(docs))
	}
	for i := 0; i < len(docs); i += 2 {
		if !slices.ContainsFunc(live, func(name string) bool { return name == string(docs[i]) }) {
			t.Errorf("Redis has no %s", docs[i])
		}
	}
}
