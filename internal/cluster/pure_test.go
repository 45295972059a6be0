package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/wire"
)

// mapOf returns a map of n masters. master returns which of them serves a slot.
func mapOf(n int, master func(slot int) int) *slotMap {
	m := &slotMap{}
	index := map[int]uint16{}
	for slot := range Slots {
		i := master(slot)
		if i < 0 {
			continue
		}
		if index[i] == 0 {
			m.masters = append(m.masters, fmt.Sprintf("h%d:1", i))
			m.ids = append(m.ids, fmt.Sprintf("id%d", i))
			m.lowest = append(m.lowest, slot)
			index[i] = uint16(len(m.masters))
		}
		m.owner.set(slot, index[i])
	}
	return m
}

// Every key is in one group, by its slot, and each group's keys are in their order.
func TestGroupsPartitionTheKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := [][]byte{[]byte("MGET")}
		var at []int
		keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3), 1, 40).Draw(t, "keys")
		for i, key := range keys {
			args, at = append(args, key), append(at, i+1)
		}
		seen := map[int]bool{}
		slots := map[int]bool{}
		for _, g := range groups(args, at) {
			if slots[g.slot] || !slices.IsSorted(g.at) {
				t.Fatalf("slot %d twice, or %v out of order", g.slot, g.at)
			}
			slots[g.slot] = true
			for _, i := range g.at {
				if seen[i] || Slot(args[i]) != g.slot {
					t.Fatalf("key %d is in the wrong group, or in two", i)
				}
				seen[i] = true
			}
		}
		if len(seen) != len(at) {
			t.Fatalf("%d keys of %d", len(seen), len(at))
		}
	})
}

// The answers of MGET's parts are put back in the order of its keys.
func TestMgetIsJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := [][]byte{[]byte("MGET")}
		var at []int
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			args, at = append(args, rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "key")),
				append(at, i+1)
		}
		gs := groups(args, at)
		replies := make([][]byte, len(gs))
		for i, g := range gs {
			replies[i] = []byte(fmt.Sprintf("*%d\r\n", len(g.at)))
			for _, at := range g.at {
				replies[i] = fmt.Appendf(replies[i], "$%d\r\n%s\r\n", len(args[at]), args[at])
			}
		}
		_, elems, err := wire.Elements(string(joinMget(gs, len(at))(replies)))
		if err != nil || len(elems) != len(at) {
			t.Fatalf("%d elements of %d, %v", len(elems), len(at), err)
		}
		for i, elem := range elems {
			want := fmt.Sprintf("$%d\r\n%s\r\n", len(args[at[i]]), args[at[i]])
			if elem != want {
				t.Fatalf("element %d: %q, not %q", i, elem, want)
			}
		}
	})
}

// A scan visits every master once, whatever their own cursors are, and ends.
func TestScanCursors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "masters")
		width := rapid.IntRange(1, Slots/n).Draw(t, "width")
		m := mapOf(n, func(slot int) int { return slot / width % n })
		var visits []int
		text := "0"
		for range 1000 {
			place, ok := decodeScan([]byte(text))
			if !ok {
				t.Fatalf("cursor %q can't be read", text)
			}
			master, own := place.current(m)
			if own == 0 {
				visits = append(visits, master)
			}
			answer := rapid.Uint64Range(0, 1<<scanCursorBits-1).Draw(t, "answer")
			if rapid.Bool().Draw(t, "done") {
				answer = 0
			}
			if text, ok = nextScan(m, master, answer); !ok {
				t.Fatalf("cursor %d doesn't fit", answer)
			}
			if text == "0" {
				break
			}
			if next, _ := decodeScan([]byte(text)); answer > 0 && next.cursor != answer {
				t.Fatalf("cursor %d became %d", answer, next.cursor)
			}
		}
		want := make([]int, len(m.masters))
		for i := range want {
			want[i] = i
		}
		if text == "0" && !slices.Equal(visits, want) {
			t.Fatalf("visited %v of %d masters", visits, len(want))
		}
	})
}

// A scan begins again when a replica has taken its master's place, which does not know the cursor,
// and when the order of the masters has changed, so that one could be left out.
func TestScanWhileMastersChange(t *testing.T) {
	m := mapOf(3, func(slot int) int { return slot * 3 / Slots })
	text, _ := nextScan(m, 1, 77)
	place, _ := decodeScan([]byte(text))
	if master, own := place.current(m); master != 1 || own != 77 {
		t.Errorf("master %d from %d", master, own)
	}
	replaced := *m
	replaced.ids = []string{"id0", "another", "id2"}
	moved := mapOf(3, func(slot int) int {
		if slot == 0 {
			return 2 // which is the first now
		}
		return slot * 3 / Slots
	})
	for _, changed := range []*slotMap{&replaced, moved} {
		if master, own := place.current(changed); master != 0 || own != 0 {
			t.Errorf("master %d from %d", master, own)
		}
	}
	if _, ok := nextScan(m, 1, 1<<scanCursorBits); ok {
		t.Error("a cursor that is too large fits")
	}
}

// parseMap reads what a node says, also if it does not tell its own host.
func TestMapIsRead(t *testing.T) {
	raw := "*3\r\n" +
		"*4\r\n:8192\r\n:16383\r\n" +
		"*4\r\n$9\r\n127.0.0.2\r\n:7001\r\n$2\r\nbb\r\n*0\r\n" +
		"*3\r\n$0\r\n\r\n:7005\r\n$2\r\nee\r\n" +
		"*3\r\n:0\r\n:99\r\n*4\r\n$-1\r\n:7000\r\n$2\r\naa\r\n*2\r\n$8\r\nhostname\r\n$1\r\nx\r\n" +
		"*3\r\n:100\r\n:100\r\n*3\r\n$1\r\n?\r\n:7002\r\n$2\r\ncc\r\n"
	m, err := parseMap([]byte(raw), "10.1.1.1:6379")
	if err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]string{0: "10.1.1.1:7000", 99: "10.1.1.1:7000",
		100: "10.1.1.1:7002", 101: "", 8192: "127.0.0.2:7001"} {
		if got := m.master(slot); got != want {
			t.Errorf("slot %d: %q, not %q", slot, got, want)
		}
	}
	if !slices.Equal(m.replicas, []string{"10.1.1.1:7005"}) || m.whole() ||
		!slices.Equal(m.lowest, []int{0, 100, 8192}) {
		t.Errorf("replicas %v, whole %v, lowest %v", m.replicas, m.whole(), m.lowest)
	}
	changed := m.with(101, "10.1.1.1:7002").with(102, "new:1")
	if changed.master(101) != "10.1.1.1:7002" || changed.master(102) != "new:1" ||
		m.master(101) != "" {
		t.Error("a moved slot isn't in the new map, or is in the old one")
	}
	bad := []string{"*0\r\n", "-ERR no\r\n", "*1\r\n*1\r\n:1\r\n", "+OK\r\n"}
	for _, slots := range []string{":5\r\n:99999\r\n", ":-1\r\n:5\r\n", ":5\r\n:4\r\n",
		":0\r\n:16384\r\n"} {
		bad = append(bad, "*1\r\n*3\r\n"+slots+"*2\r\n$1\r\na\r\n:1\r\n")
	}
	for _, node := range []string{"*0\r\n", "*1\r\n$1\r\na\r\n", ":1\r\n",
		"*2\r\n$1\r\na\r\n:0\r\n", "*2\r\n$1\r\na\r\n:65536\r\n"} {
		bad = append(bad, "*1\r\n*3\r\n:0\r\n:5\r\n"+node)
	}
	for _, port := range []string{"1", "65535"} {
		good := "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:" + port + "\r\n"
		if m, err := parseMap([]byte(good), "a:1"); err != nil || m.master(16383) != "a:"+port {
			t.Errorf("%q is not taken for a map: %v", good, err)
		}
	}
	for _, bad := range bad {
		if _, err := parseMap([]byte(bad), "a:1"); err == nil {
			t.Errorf("%q is taken for a map", bad)
		}
	}
}

func TestRedirections(t *testing.T) {
	for _, c := range []struct {
		line string
		kind redirection
		slot int
		addr string
	}{
		{"MOVED 12182 127.0.0.1:7002", moved, 12182, "127.0.0.1:7002"},
		{"MOVED 1 :7002", moved, 1, "asked:7002"},
		{"MOVED 1 ?:7002", moved, 1, "asked:7002"},
		{"ASK 0 some.host.example:7002", ask, 0, "some.host.example:7002"},
		{"ASK 16383 ::1:7002", ask, 16383, "[::1]:7002"},
		{"MOVED 16384 a:1", notRedirected, 0, ""},
		{"MOVED x a:1", notRedirected, 0, ""},
		{"MOVED", notRedirected, 0, ""},
		{"TRYAGAIN Multiple keys request during rehashing of slot", tryAgain, 0, ""},
		{"CLUSTERDOWN The cluster is down", down, 0, ""},
		{"UNBLOCKED force unblock from blocking operation, instance state changed (master -> " +
			"replica?)", demoted, 0, ""},
		{"UNBLOCKED client unblocked via CLIENT UNBLOCK", notRedirected, 0, ""},
		{"ERR MOVED 1 a:1", notRedirected, 0, ""},
		{"READONLY You can't write against a read only replica.", readOnly, 0, ""},
	} {
		if kind, slot, addr := parseRedirect([]byte(c.line), "asked:1"); kind != c.kind ||
			slot != c.slot || addr != c.addr {
			t.Errorf("%s: %d %d %s", c.line, kind, slot, addr)
		}
	}
}

func TestJoins(t *testing.T) {
	for _, c := range []struct {
		name string
		join joiner
		in   []string
		want string
	}{
		{"sum", joinSum, []string{":1\r\n", ":-2\r\n", ":30\r\n"}, ":29\r\n"},
		{"min", joinMin, []string{":5\r\n", ":2\r\n", ":3\r\n"}, ":2\r\n"},
		{"largest", joinMax, []string{":0\r\n", ":2\r\n"}, ":2\r\n"},
		{"largest of OK", joinMax, []string{"+OK\r\n", "+OK\r\n"}, "+OK\r\n"},
		{"all", joinAll, []string{"*1\r\n$1\r\na\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n:2\r\n"},
			"*3\r\n$1\r\na\r\n:1\r\n*1\r\n:2\r\n"},
		{"distinct", joinDistinct, []string{"*1\r\n$1\r\na\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n"},
			"*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"min each", joinMinEach, []string{"*2\r\n:1\r\n:0\r\n", "*2\r\n:1\r\n:1\r\n"},
			"*2\r\n:1\r\n:0\r\n"},
		{"sum each", joinSumEach, []string{"*2\r\n$1\r\nc\r\n:1\r\n", "*2\r\n$1\r\nc\r\n:4\r\n"},
			"*2\r\n$1\r\nc\r\n:5\r\n"},
		{"none", joinSum, []string{"+odd\r\n", ":1\r\n"}, "+odd\r\n"},
		{"error", joinReplies(joinSum, false), []string{":1\r\n", "-OOM no\r\n"}, "-OOM no\r\n"},
		{"any", joinReplies(joinFirst, true), []string{"-NOTBUSY no\r\n", "+OK\r\n"}, "+OK\r\n"},
		{"none of any", joinReplies(joinFirst, true), []string{"-NOTBUSY no\r\n",
			"-NOTBUSY no\r\n"}, "-NOTBUSY no\r\n"},
		{"unknown before others", joinReplies(joinSum, false),
			[]string{"-OOM no\r\n", "-UPSTREAM x: whether the command ran is unknown\r\n"},
			"-UPSTREAM x: whether the command ran is unknown\r\n"},
		{"in part", joinReplies(joinSum, false), []string{":1\r\n", "-UPSTREAM cannot reach x\r\n"},
			"-UPSTREAM a part of the request was run by its node, but another node could not be " +
				"reached: the outcome is unknown in part (cannot reach x)\r\n"},
	} {
		var in [][]byte
		for _, raw := range c.in {
			in = append(in, []byte(raw))
		}
		if got := string(c.join(in)); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// A client reads all that was delivered, in whatever pieces. Nothing is written behind a piece,
// where others may have something.
func TestReplyInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := replyQueue{readable: sync.NewCond(&sync.Mutex{})}
		r := &request{}
		q.add(r)
		var want, got []byte
		var lent, before [][]byte
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				b := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bytes")
				lent, before = append(lent, b), append(before, bytes.Clone(b))
				piece := b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
				want = append(want, piece...)
				q.deliver(r, piece)
				continue
			}
			buf := make([]byte, rapid.IntRange(0, 7).Draw(t, "room"))
			got = append(got, buf[:q.read(buf)]...)
		}
		if !slices.EqualFunc(lent, before, bytes.Equal) {
			t.Fatalf("%q became %q", before, lent)
		}
		if q.unread != len(want)-len(got) {
			t.Fatalf("%d bytes are unread of %d, of which %d were read", q.unread, len(want), len(got))
		}
		rest := make([]byte, len(want))
		if got = append(got, rest[:q.read(rest)]...); !bytes.Equal(got, want) {
			t.Fatalf("%q, not %q", got, want)
		}
	})
}

// FuzzRoute routes whatever a framer accepts: it must find a slot or none, and never fail.
func FuzzRoute(f *testing.F) {
	for _, seed := range []string{"GET a", "EVAL s 99 a", "EVAL s -1 a", "XREAD STREAMS",
		"SORT a STORE", "MIGRATE h 1", "ZUNIONSTORE", "BLPOP a", "MSET a", "GEORADIUS a STORE"} {
		f.Add(wire.Append(nil, strings.Fields(seed)...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		framer := resp.NewFramer(limits)
		for len(data) > 0 {
			req, whole, err := framer.Next(data)
			if err != nil || !whole {
				return
			}
			data = data[len(req.Raw):]
			if len(req.Args) == 0 {
				continue
			}
			cmd := lookup(req.Args)
			for _, i := range cmd.Keys.Positions(req.Args, nil) {
				if slot := Slot(req.Args[i]); slot < 0 || slot >= Slots {
					t.Fatalf("slot %d", slot)
				}
			}
			for n := 1; n <= len(req.Args); n++ {
				slot, ok := cmd.headSlot(req.Args[:n], len(req.Args))
				if at := cmd.Keys.Positions(req.Args, nil); ok && len(at) > 0 && slot >= 0 {
					for _, i := range at {
						if Slot(req.Args[i]) != slot {
							t.Fatalf("%q: the beginning says slot %d, the whole %d", req.Args, slot,
								Slot(req.Args[i]))
						}
					}
				}
			}
		}
	})
}

func TestLineOf(t *testing.T) {
	if got := strconv.Quote(string(lineOf([]byte("-ERR x\r\n")))); got != `"ERR x"` {
		t.Error(got)
	}
}

// A node is a promoted one if it was a replica, or has taken a master's place: CLUSTER SLOTS leaves
// out a replica whose offset is 0. One that slots were moved to is not.
func TestPromoted(t *testing.T) {
	node := func(port string) string { return "*3\r\n$1\r\nh\r\n:" + port + "\r\n$1\r\ni\r\n" }
	slots := func(from, to string, nodes ...string) string {
		text := fmt.Sprintf("*%d\r\n:%s\r\n:%s\r\n", 2+len(nodes), from, to)
		for _, port := range nodes {
			text += node(port)
		}
		return text
	}
	before := "*2\r\n" + slots("0", "8000", "1", "11") + slots("8001", "16383", "2")
	for _, test := range []struct {
		name, after string
		want        []string
	}{
		{"nothing", before, nil},
		{"a replica", "*2\r\n" + slots("0", "8000", "11", "1") + slots("8001", "16383", "2"),
			[]string{"h:11"}},
		{"one that was left out", "*2\r\n" + slots("0", "8000", "1", "11") +
			slots("8001", "16383", "22"), []string{"h:22"}},
		{"a slot has moved to a new node", "*3\r\n" + slots("0", "8000", "1", "11") +
			slots("8001", "8001", "3") + slots("8002", "16383", "2"), nil},
		{"one that was left out, after a redirection", "*2\r\n" + slots("0", "8000", "1", "11") +
			slots("8001", "16383", "33"), []string{"h:33"}},
		{"a replica, after a redirection", "*2\r\n" + slots("0", "8000", "1", "11") +
			slots("8001", "16383", "44"), nil},
		{"all slots have moved to another master", "*1\r\n" + slots("0", "16383", "1", "11"), nil},
	} {
		old, err := parseMap([]byte(before), "h:1")
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(test.name, "redirection") {
			old.replicas = append(old.replicas, "h:44")
			old = old.with(9000, "h:33").with(9001, "h:44")
		}
		m, err := parseMap([]byte(test.after), "h:1")
		if err != nil {
			t.Fatal(err)
		}
		if got := m.promoted(old); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A map is what it was told, and one that differs in a slot leaves the older one alone, and shares
// with it all but the slots around that one.
func TestSlotOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var owners slotOwners
		var plain [Slots]uint16
		aSlot, anOwner := rapid.IntRange(0, Slots-1), rapid.Uint16Range(0, 9)
		for range rapid.IntRange(1, 20).Draw(t, "ranges") {
			from, to, owner := aSlot.Draw(t, "from"), aSlot.Draw(t, "to"), anOwner.Draw(t, "owner")
			owners.setRange(from, to, owner)
			for slot := from; slot <= to; slot++ {
				plain[slot] = owner
			}
		}
		before := owners
		moved, owner := aSlot.Draw(t, "moved"), anOwner.Draw(t, "to owner")
		owners.set(moved, owner)
		same := 0
		for i := range before {
			if before[i] == owners[i] {
				same++
			}
		}
		if same != len(before)-1 {
			t.Errorf("%d of %d chunks are shared", same, len(before))
		}
		for slot := range Slots {
			if before.of(slot) != plain[slot] {
				t.Fatalf("slot %d: %d, not %d, in the older map", slot, before.of(slot), plain[slot])
			}
			if slot == moved {
				plain[slot] = owner
			}
			if owners.of(slot) != plain[slot] {
				t.Fatalf("slot %d: %d, not %d", slot, owners.of(slot), plain[slot])
			}
		}
	})
}
