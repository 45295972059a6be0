package relay_test

import (
	"bufio"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/syntax"
)

// diffExceptions lists the replies that differ because two servers,
// or two connections, are compared. What differs is normalised; the
// rest must be the same. calls are the first words of a call.
var diffExceptions = []struct {
	calls  string // separated by commas
	normal func(raw string) string
	reason string
}{
	// The two servers differ.
	{"time,lastsave,object idletime,acl log,slowlog get,latency latest,latency history,latency " +
		"doctor," +
		"ttl,pttl,httl,hpttl,function stats,memory usage,client list,client info", diffNumbers,
		"clocks, addresses, ids and memory sizes"},
	{"memory stats", diffSigned, "memory sizes, and differences of them, which can be negative"},
	{"latency histogram,latency graph,hotkeys get", diffNumbers, "measured durations"},
	{"memory malloc-stats,memory doctor,debug jmap,debug htstats,debug htstats-key", diffType,
		"the memory of one process"},
	{"info", diffFields, "INFO is about one process: its fields must be the same"},
	{"config get", diffSortedNumbers,
		"directory, port and files; the order of a hash table whose seed is random"},
	{"cluster myid,cluster myshardid,cluster nodes,cluster links,cluster slots,cluster shards,cluster replicas," +
		"cluster slaves",
		diffHex, "random names, ports, and times"},
	{"debug object,role,psync,sync", diffHex, "addresses in memory; replication ids are random"},
	{"keys,scan,smembers,sscan,sunion,sinter,sdiff,hgetall,hkeys,hvals,pubsub channels," +
		"pubsub shardchannels,function list,acl cat",
		diffSorted, "the order of a hash table whose seed is random"},
	{"unsubscribe,punsubscribe,sunsubscribe", diffUnsubscribed,
		"without names: the order of a hash table whose seed is random"},
	{"randomkey,srandmember,spop,hrandfield,zrandmember,vrandmember", diffType, "random elements"},
	{"vlinks,vinfo", func(raw string) string { return raw[:1] },
		"the levels of a graph are random"},
	{"xadd", diffStreamID, "the id * is the server's clock"},
	{"lolwut,acl genpass", diffType, "a random picture or password"},
	{"hello,exec", diffConnectionID, "the id of the connection, also from HELLO in a transaction"},
	{"client id", diffNumbers, "the id of the connection"},
	{"function dump", diffType, "the order of a hash table whose seed is random"},

	// The proxy differs, as it should.
	{"command count", diffNumbers, "the proxy counts its lock commands too"},
	{"command,command info,command docs", diffWithoutLocks, "the proxy has lock commands too"},
	{"command list", diffListWithoutLocks,
		"the proxy has lock commands too; the order of a hash table"},
}

// diffFeeds are messages that answer no call, wherever they come, and an error that depends on the
// kernel.
var diffFeeds = []struct {
	hint    string
	pattern *regexp.Regexp
	with    string
	reason  string
}{
	{`] "`, regexp.MustCompile(`(?m)^\+[0-9]+\.[0-9]{6} \[([0-9]+) ([0-9.]+:[0-9]+|lua)\] `),
		"+TIME [$1 ADDR] ", "MONITOR shows times and addresses"},
	{`tracking-redir-broken`, regexp.MustCompile(`(tracking-redir-broken\r\n):[0-9]+`), "$1:N",
		"the id of the connection"},
	{`-IOERR `, regexp.MustCompile(`-IOERR error or timeout (writing|connecting) [a-z ]+`),
		"-IOERR", "MIGRATE to a closed port fails as soon as the kernel tells that it is closed"},
}

// diffShared are replies that can differ where clients share upstream connections.
var diffShared = []struct {
	calls  string
	normal func(raw string) string
	reason string
}{
	{"client list", diffType, "it shows the upstream's connections"},
	{"info", func(raw string) string {
		return strings.NewReplacer("cmdstat_client|info\r\n", "",
			"latency_percentiles_usec_client|info\r\n", "").Replace(diffFields(raw))
	}, "the proxy asks Redis whether it lets new clients in"},
}

// diffStaysOpen are steps at which Redis has closed a connection that the proxy keeps: no request
// of the client was in flight and its connection had no state. A PING is answered that the upstream
// is away.
var diffStaysOpen = map[string]string{
	"@idle => closed": "it continues when the upstream is back",
}

// Not in these tables, because what Redis does is useless:
//
//   - CLIENT REPLY OFF or SKIP within MULTI cuts EXEC's array short. The proxy's has all elements.
//   - QUIT, or a protocol error, under CLIENT REPLY OFF leaves the connection open forever. The
//     proxy closes it.
//   - REPLCONF ACK and GETACK within MULTI get no reply in EXEC's array, which counts one. The
//     proxy relays everything, but lock commands fail on that connection until RESET.

// diffNormal is the part of a reply to call that is compared.
func diffNormal(call []string, raw string) string {
	for _, feed := range diffFeeds {
		if !strings.Contains(raw, feed.hint) { // a regular expression is slow on a large reply
			continue
		}
		raw = feed.pattern.ReplaceAllString(raw, feed.with)
	}
	if len(call) == 0 || diffIsError(raw) {
		return raw
	}
	whole := strings.ToLower(strings.Join(call, " "))
	var best string
	normal := diffSame
	exceptions := diffExceptions
	if !proxytest.Dedicated {
		exceptions = append(slices.Clone(exceptions), diffShared...)
	}
	for _, e := range exceptions {
		for _, prefix := range strings.Split(e.calls, ",") {
			if len(prefix) >= len(best) &&
				(whole == prefix || strings.HasPrefix(whole, prefix+" ")) {
				best, normal = prefix, e.normal
			}
		}
	}
	return normal(raw)
}

func diffSame(raw string) string { return raw }

var (
	diffNumber = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	diffHexes  = regexp.MustCompile(`[0-9a-f]{8,}`)
)

// diffNumbers drops the numbers.
func diffNumbers(raw string) string { return diffNumber.ReplaceAllString(raw, "N") }

// diffSigned drops the numbers and their signs.
func diffSigned(raw string) string {
	return diffNumbers(regexp.MustCompile(`:-[0-9]+`).ReplaceAllString(raw, ":0"))
}

// diffHex drops long hexadecimal numbers, and other numbers.
func diffHex(raw string) string { return diffNumbers(diffHexes.ReplaceAllString(raw, "H")) }

func diffStreamID(raw string) string {
	return regexp.MustCompile(`[0-9]{13}-[0-9]`).ReplaceAllString(raw, "ID")
}

func diffConnectionID(raw string) string {
	return regexp.MustCompile(`(\$2\r\nid\r\n):[0-9]+`).ReplaceAllString(raw, "$1:N")
}

// diffType keeps only the type of the reply, and null and empty ones.
func diffType(raw string) string {
	if raw == "" {
		return ""
	}
	if strings.HasPrefix(raw, "$-1") || strings.HasPrefix(raw, "*-1") ||
		strings.HasPrefix(raw, "*0") {
		return raw
	}
	if strings.ContainsRune("*~%", rune(raw[0])) { // with the number of elements
		return raw[:strings.Index(raw, "\n")+1]
	}
	return raw[:1]
}

var diffField = regexp.MustCompile(`(?m)^([a-z_0-9|-]+):[^\r\n]*`)

// diffOwnStat is a field about what the proxy asks of its own, when connections have been idle.
var diffOwnStat = regexp.MustCompile(`(?m)^(cmdstat|latency_percentiles_usec)_ping:[^\r\n]*\r\n`)

// diffFields keeps the names of fields and sections.
func diffFields(raw string) string {
	raw = diffOwnStat.ReplaceAllString(raw, "")
	raw = regexp.MustCompile(`^[$=][0-9]+`).ReplaceAllString(diffField.ReplaceAllString(raw, "$1"),
		"")
	return diffSortText(raw) // statistics of commands are in the order of a hash table
}

// diffSorted sorts the elements of all arrays, sets and maps.
func diffSorted(raw string) string {
	return diffEach(raw, func(v *wire.Value) { diffSortElems(v) })
}

func diffSortedNumbers(raw string) string {
	raw = regexp.MustCompile(`/[^\r\n ]*`).ReplaceAllString(raw, "PATH")
	return diffSortText(diffNumbers(raw))
}

// diffSortText sorts the lines, for replies whose lengths are normalised.
func diffSortText(text string) string {
	lines := strings.Split(text, "\r\n")
	sort.Strings(lines)
	return strings.Join(lines, "\r\n")
}

// diffUnsubscribed keeps the counts in their order and the names in alphabetical order.
func diffUnsubscribed(raw string) string {
	var names []string
	text := regexp.MustCompile(`(?m)(subscribe\r\n)\$[0-9]+\r\n(.*)\r\n`).ReplaceAllStringFunc(raw,
		func(found string) string {
			_, name, _ := strings.Cut(found, "\r\n")
			names = append(names, name)
			return "subscribe\r\nNAME\r\n"
		})
	sort.Strings(names)
	return text + strings.Join(names, "")
}

// diffEach decodes each reply in raw, passes it to change, and writes it as text.
func diffEach(raw string, change func(*wire.Value)) string {
	var text strings.Builder
	for in := bufio.NewReader(strings.NewReader(raw)); len(raw) > 0; {
		one, err := wire.ReadReply(in, wire.Either)
		if err != nil {
			return text.String() + raw
		}
		v, _ := wire.Parse(one)
		change(&v)
		text.WriteString(diffText(v) + " ")
		raw = raw[len(one):]
	}
	return text.String()
}

func diffText(v wire.Value) string {
	switch v.Type {
	case '*', '%', '~', '>':
		parts := make([]string, len(v.Elems))
		for i, elem := range v.Elems {
			parts[i] = diffText(elem)
		}
		return fmt.Sprintf("%c%d(%s)", v.Type, len(v.Elems), strings.Join(parts, " "))
	case ':':
		return fmt.Sprintf(":%d", v.Int)
	}
	if v.Type == '+' {
		return v.Text
	}
	return fmt.Sprintf("%c%q", v.Type, v.Text)
}

// diffSortElems sorts the elements of v and theirs, each as a text.
func diffSortElems(v *wire.Value) {
	if len(v.Elems) == 0 {
		return
	}
	texts := make([]string, len(v.Elems))
	for i := range v.Elems {
		diffSortElems(&v.Elems[i])
		texts[i] = diffText(v.Elems[i])
	}
	if v.Type != '>' {
		sort.Strings(texts)
	}
	for i, text := range texts {
		v.Elems[i] = wire.Value{Type: '+', Text: text}
	}
}

// diffWithoutLocks leaves out what COMMAND, COMMAND INFO and COMMAND DOCS say about lock commands,
// and the order of the rest, which is a hash table's.
func diffWithoutLocks(raw string) string {
	return diffEach(raw, func(v *wire.Value) {
		var kept []wire.Value
		for i := 0; i < len(v.Elems); i++ {
			elem := v.Elems[i]
			name := elem.Text
			if elem.Type == '*' && len(elem.Elems) > 0 {
				name = elem.Elems[0].Text
			}
			// COMMAND DOCS: a name and its documentation
			pair := elem.Type == '$' && i+1 < len(v.Elems)
			if !diffIsLock(name) {
				kept = append(kept, elem)
				if pair {
					kept[len(kept)-1].Elems = []wire.Value{v.Elems[i+1]}
				}
			}
			if pair {
				i++
			}
		}
		v.Elems = kept
		v.Type = '*'
		for i := range v.Elems { // their order is Redis's
			v.Elems[i] = wire.Value{Type: '+', Text: diffPairText(v.Elems[i])}
		}
		diffSortElems(v)
	})
}

func diffListWithoutLocks(raw string) string {
	return diffEach(raw, func(v *wire.Value) {
		v.Elems = slices.DeleteFunc(v.Elems, func(elem wire.Value) bool {
			return diffIsLock(elem.Text)
		})
		diffSortElems(v)
	})
}

func diffPairText(v wire.Value) string {
	if v.Type == '$' && len(v.Elems) == 1 {
		diffSortElems(&v.Elems[0])
		return v.Text + " " + diffText(v.Elems[0])
	}
	diffSortElems(&v) // subcommands are in a hash table too
	return diffText(v)
}

var diffLockNames = []string{"lock", "unlock", "relock", "lockinfo", "lockscan", "fence"}

func diffIsLock(name string) bool {
	known := func(spec syntax.Spec) bool { return spec.Name == name }
	return slices.Contains(diffLockNames, name) || slices.ContainsFunc(syntax.Specs, known)
}
