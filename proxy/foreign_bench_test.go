package proxy

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// What it costs a request that the proxy looks for locks of other libraries, by the request and by
// how many such locks are known. "reading" is what reading and looking up a GET costs, which is
// part of what any request costs. Run with -bench Recognition.
func BenchmarkRecognition(b *testing.B) {
	b.Run("reading", func(b *testing.B) {
		raw := wire.Append(nil, "GET", "job:1")
		framer := resp.NewFramer(resp.Limits{})
		for b.Loop() {
			req, _, err := framer.Next(raw)
			if err != nil || !lookup(req.Args[0]).batchable() {
				b.Fatal("no GET")
			}
		}
	})
	for _, known := range []int{0, 1000} {
		locks := lockcmd.New(lockcmd.Config{}, "p", nil, hclog.NewNullLogger())
		defer locks.Close()
		x := &exchange{common: &common{&client{}, &Server{locks: locks}, &passthrough.Pipe{}}}
		x.client.holder.Addr = "127.0.0.1:1"
		for i := range known {
			x.observe(fmt.Sprintf("SET job:%d mine NX PX 60000", i), "+OK")
		}
		for _, line := range []string{
			"GET job:1", "HSET hash field value", "SET job:1 value", "SET job:1 value EX 10",
			"DEL other", "EXPIRE other 10", "EVAL return(1) 1 other",
			"SET job:1 value NX PX 60000",
		} {
			b.Run(fmt.Sprintf("%d known/%s", known, line), func(b *testing.B) {
				b.ReportAllocs()
				args, head := bytes.Fields([]byte(line)), resp.Head{Type: '$', Line: []byte("-1")}
				cmd := lookup(args[0])
				for b.Loop() {
					if replied := x.observeForeign(cmd, args); replied != nil {
						replied(head)
					}
				}
			})
		}
	}
}

// observe is for a request that was answered.
func (x *exchange) observe(line, reply string) {
	args := bytes.Fields([]byte(line))
	x.observeForeign(lookup(args[0]), args)(resp.Head{Type: reply[0], Line: []byte(reply[1:])})
}
