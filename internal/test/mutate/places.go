package mutate

// places are where changes are drawn, with the packages whose tests judge them, in this order. The
// tests of a place's own package are the first.
var places = []struct {
	name   string
	suites []string
}{
	{"internal/cluster", []string{"internal/cluster", "test/cluster"}},
	{"internal/upstream", []string{"internal/upstream", virtual, "test/relay", "cmd/lockproxy"}},
	{luaPlace, locks},
	{luaPackage, append([]string{luaPackage}, locks...)},
	{"lockcmd/held", append([]string{"lockcmd/held"}, locks...)},
	{"lockcmd/hints", append([]string{"lockcmd/hints", "test/cluster"}, locks...)},
	{"lockcmd/search", append([]string{"lockcmd/search", "test/cluster"}, locks...)},
	{"lockcmd/queue", append([]string{"lockcmd/queue"}, locks...)},
	{"lockcmd", []string{"lockcmd", virtual, "test/locks/real", "internal/admin"}},
	{"passthrough", []string{"passthrough", virtual, "test/relay", "test/sharing"}},
	{"proxy", []string{"proxy", virtual, "test/relay", "test/locks/real", "cmd/lockproxy"}},
}

const virtual = "test/locks/virtual"

var locks = []string{"lockcmd", virtual, "test/locks/real"}
