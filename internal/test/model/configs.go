package model

// config is one search: what the model is built with, and what the search must find.
type config struct {
	name   string
	with   string // -D, by blanks
	breaks string // the property that spin must find broken; "" if none may be
	size   size
}

type size int

const (
	normal size = iota
	quick       // explored by -quick too
	large       // millions of states: worth an optimizing compiler
)

// lockAlone is LOCK among themselves.
func lockAlone() []config {
	// Where no time passes, clients come back for ever. Nobody may get stuck, though no waiter ever
	// looks by itself.
	const line = "ENDLESS WAITS LOCKERS=3 "
	// Where it does, everybody is in time (URGENT), or as late as can be.
	const urgent = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS LOCKERS=3 "
	const tries = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS TRIER=0 TIMEOUT=2 ROUNDS=2 "
	const late = "WAITS POLLS CHECK_TOKENS "
	return []config{
		{"line, one proxy", line + "PROXIES=1 CHECK_FAIR=1", "", quick},
		{"line, two proxies", line + "CHECK_FAIR=2", "", normal},
		{"line, one proxy, waiters leave", "ENDLESS WAITS GIVES_UP=1 PROXIES=1", "", normal},
		{"line, two proxies, waiters leave", "ENDLESS WAITS GIVES_UP=1", "", normal},
		{"in time, two proxies", urgent + "END=8", "", quick},
		{"in time, rounds",
			"URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS ROUNDS=3 SHORT_LOCKS", "", normal},
		{"in time, gaps", urgent + "GAPS END=7", "", normal},
		{"in time, waiters leave", urgent + "GIVES_UP=1 END=6", "", normal},
		{"in time, waiters leave, long looks",
			urgent + "GIVES_UP=1 END=6 LOOK=2 CHECK_PROMPT=2", "", normal},
		{"in time, holders crash", urgent + "HOLDERS_CRASH SHORT_LOCKS END=7", "", normal},
		{"in time, messages are lost", urgent + "MESSAGES_MAY_BE_LOST END=7", "", normal},
		{"in time, a proxy is killed", urgent + "PROXY_CRASHES HOLDERS_CRASH END=6", "", normal},
		{"in time, LOCK without WAIT",
			urgent + "TRIER=0 HOLDERS_CRASH TIMEOUT=2 END=6", "", quick},
		{"in time, LOCK without WAIT, waiters leave",
			tries + "GIVES_UP=1 END=7", "", quick},
		{"late, no waiting", "ROUNDS=3 SHORT_LOCKS CHECK_TOKENS", "", quick},
		{"late, one proxy", late + "PROXIES=1 ROUNDS=2 SHORT_LOCKS END=6", "", normal},
		{"late, two proxies", late + "ROUNDS=2 SHORT_LOCKS END=6", "", quick},
		{"late, RELOCK", late + "RELOCKS=2 END=6", "", normal},
		{"late, waiters leave", late + "PROXIES=1 GIVES_UP=1 SHORT_LOCKS END=6", "", normal},
		{"late, a proxy is killed", late + "PROXY_CRASHES SHORT_LOCKS END=6", "", normal},
		{"FENCE", late + "FENCES SHORT_LOCKS END=7", "", quick},
		{"FENCE, no waiting", "FENCES SHORT_LOCKS ROUNDS=2 END=7", "", normal},
		{"guard, RELOCK", late + "GUARD=1 RELOCKS=2 END=6", "", normal},
		{"guard, holders crash",
			"GUARD=1 URGENT WAITS POLLS CHECK_PROMPT=2 CHECK_TOKENS LOCKERS=3 HOLDERS_CRASH " +
				"SHORT_LOCKS END=7",
			"", normal},
		{"late, the clock is set back", late + "CLOCK_STEPS_BACK=2 SHORT_LOCKS END=6", "", normal},
		{
			"tokens, forgotten",
			"CHECK_TOKENS RETENTION=1 STAYS_UP_TO=1 ROUNDS=3 SHORT_LOCKS", "", normal,
		},
		{"tokens, the clock is set back",
			"CHECK_TOKENS RETENTION=3 CLOCK_STEPS_BACK=2 ROUNDS=3 SHORT_LOCKS", "", normal},
	}
}

var recipes = []string{"L1", "L2", "L3", "L5"}

// nextToForeign is LOCK next to foreign clients that may be paused between any two of their
// commands, with all that they may do excused.
func nextToForeign() []config {
	var list []config
	for _, r := range recipes {
		one := "PLAIN1=" + r
		with := ""
		if r == "L5" {
			with = " WITHOUT=EX_ALL" // nothing needs to be excused
		}
		list = append(list,
			config{r + ", two proxies", one + with, "", normal},
			config{r + ", a line",
				one + " WAITS POLLS PLAIN_SEEN PROXIES=1 END=6" + with, "", large},
			config{r + ", hand-over between proxies",
				one + " WAITS POLLS PLAIN_SEEN END=6" + with, "", large},
			config{r + ", two of them",
				one + " PLAIN2=" + r + " LOCKERS=1 PROXIES=1" + with, "", large},
			config{r + ", brisk",
				one + " GAP_TICKS=0 PLAIN_ROUNDS=2 SETTLE=3 WITHOUT=EX_ALL", "", quick},
		)
	}
	list = append(list, nextToLibraries()...)
	return append(list,
		config{"L1, an owner back, its proxy killed",
			"PLAIN1=L1 PROXY_CRASHES OWNERS END=5", "", large},
		config{"L1 and L3", "PLAIN1=L1 PLAIN2=L3 LOCKERS=1 PROXIES=1", "", large},
		config{"L2 and L5", "PLAIN1=L2 PLAIN2=L5 LOCKERS=1 PROXIES=1", "", large},
		config{"L1, LOCK in ms", "PLAIN1=L1 MS_BESIDE_SECONDS", "", normal},
		config{"L1, a proxy is killed", "PLAIN1=L1 PROXY_CRASHES END=6", "", large},
		config{"L1, guard", "PLAIN1=L1 GUARD=1 END=6", "", normal},
		config{"L5, guard", "PLAIN1=L5 GUARD=1 WITHOUT=EX_ALL", "", normal},
		config{"L3, no loser later than the settling",
			"PLAIN1=L3 GAP_TICKS=1 SETTLE=3 TIMEOUT=3 END=7 WITHOUT=EX_ALL", "", normal},
		config{"L1, RELOCK", "PLAIN1=L1 RELOCKS=2 END=6", "", normal},
		config{"L1, FENCE", "PLAIN1=L1 FENCES END=6", "", normal},
	)
}

// nextToLibraries is LOCK next to clients that take a lock by SET NX PX and release it by
// compare-and-delete. Nothing needs to be excused, unless others delete locks.
func nextToLibraries() []config {
	const one = "PLAIN1=NXPX WITHOUT=EX_ALL "
	return []config{
		{"NX PX, two proxies", one + "PLAIN_ROUNDS=2", "", quick},
		{"NX PX, a line", one + "WAITS POLLS PLAIN_SEEN PROXIES=1 END=6", "", large},
		{"NX PX, hand-over between proxies", one + "WAITS POLLS PLAIN_SEEN END=6", "", large},
		{"NX PX, two of them",
			one + "PLAIN2=NXPX LOCKERS=1 PROXIES=1 PLAIN_ROUNDS=2", "", normal},
		{"NX PX, in time", one + "URGENT WAITS POLLS PLAIN_SEEN CHECK_PROMPT=1 CHECK_TOKENS " +
			"SHORT_LOCKS PLAIN_ROUNDS=2 END=7", "", normal},
		{"NX PX, guard", one + "GUARD=1 RELOCKS=2 END=6", "", normal},
		{"NX PX, FENCE", one + "FENCES END=6", "", normal},
		{"NX PX, a proxy is killed", one + "PROXY_CRASHES HOLDERS_CRASH SHORT_LOCKS END=6", "",
			normal},
		{"NX PX and L1", "PLAIN1=L1 PLAIN2=NXPX LOCKERS=1 PROXIES=1 END=6", "", large},
	}
}
