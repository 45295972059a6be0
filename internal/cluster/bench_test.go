package cluster_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/wire"
)

// BenchmarkPipeline is a lane's use of a Conn: requests of many clients to all slots in one write,
// replies read as they come.
func BenchmarkPipeline(b *testing.B) {
	c := lasting.Cluster(b, 3, 1)
	nc, err := cluster.New(c.Addrs()).Open(b.Context(), cluster.Options{Dial: dialer,
		Timeout: dialTimeout, Failure: failure})
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	const batch = 200
	var out []byte
	for i := range batch {
		out = wire.Append(out, "SET", fmt.Sprintf("key:%d", i),
			"a value of some length, as they mostly are")
	}
	b.ResetTimer()
	const inFlight = 8
	room := make(chan struct{}, inFlight)
	go func() { // ends with the last batch
		for range (b.N + batch - 1) / batch {
			room <- struct{}{}
			nc.Write(out)
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	buf := make([]byte, 64<<10)
	got, total := 0, (b.N+batch-1)/batch*batch*len("+OK\r\n")
	for got < total {
		n, err := nc.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		for range (got+n)/(batch*5) - got/(batch*5) {
			<-room
		}
		got += n
	}
}
