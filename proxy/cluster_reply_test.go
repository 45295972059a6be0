package proxy

import (
	"testing"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/wire"
)

// CLUSTER NODES writes an IPv6 address as Redis does, without brackets.
func TestClusterNodesOnIPv6(t *testing.T) {
	nodes := clusterAnswers["nodes"](node{host: "::1", port: 6380, id: "id"})
	v, err := wire.Parse(string(resp.AppendValue(nil, nodes, 2)))
	want := "id ::1:6380@6380 myself,master - 0 0 1 connected 0-16383\n"
	if err != nil || v.Text != want {
		t.Errorf("%q, %v, not %q", v.Text, err, want)
	}
}
