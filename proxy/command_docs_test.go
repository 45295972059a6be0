package proxy

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
)

var updateDocs = flag.Bool("update-docs", false, "write command_docs.resp.gz again, from Redis")

// withoutHistory drops what redis-cli doesn't show as a hint.
func withoutHistory(v resp.Value) resp.Value {
	var kept []resp.Value
	for i := 0; i < len(v.Elems); i++ {
		if name := string(v.Elems[i].Text); v.Type == '%' && i%2 == 0 &&
			(name == "history" || name == "complexity") {
			i++
			continue
		}
		kept = append(kept, withoutHistory(v.Elems[i]))
	}
	v.Elems = kept
	return v
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
	var hello resp.Scanner
	n, _, _ := hello.Scan(raw)
	live, err := resp.ParseValue(bytes.TrimSuffix(raw[n:], []byte("+OK\r\n")))
	if err != nil || len(live.Elems) < 400 {
		t.Fatalf("%d elements, %v", len(live.Elems), err)
	}
	live = withoutHistory(live)
	if *updateDocs {
		e := &resp.Encoder{Proto: 3}
		encodeValue(e, live)
		var file bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&file, gzip.BestCompression)
		zip.Write(e.Buf)
		zip.Close()
		if err := os.WriteFile("command_docs.resp.gz", file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	docs := readRedisDocs()
	if len(docs.Elems) < 400 || len(docs.Elems)%2 != 0 {
		t.Fatalf("%d elements", len(docs.Elems))
	}
	for i := 0; i < len(docs.Elems); i += 2 {
		name := docs.Elems[i].Text
		if !slices.ContainsFunc(live.Elems, func(v resp.Value) bool {
			return bytes.Equal(v.Text, name)
		}) {
			t.Errorf("Redis has no %s", name)
		}
	}
}
