package main

// config is one search: what the model is built with, and what the search must find.
type config struct {
	name   string
	with   string // -D, by blanks
	breaks string // the property that spin must find broken; "" if none may be
	large  bool   // millions of states
}

func configs() []config {
	var all []config
	for _, list := range [][]config{lockAlone(), besidePlain()} {
		all = append(all, list...)
	}
	return all
}

// lockAlone is LOCK among themselves.
func lockAlone() []config {
	// Where no time passes, clients come back for ever. Nobody may get stuck, though no waiter ever looks by itself.
	const line = "ENDLESS WAITS LOCKERS=3 "
	// Where it does, everybody is in time (URGENT), or as late as can be.
	const urgent = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS LOCKERS=3 "
	const late = "WAITS POLLS CHECK_TOKENS "
	return []config{
		{"line, one proxy", line + "PROXIES=1 CHECK_FAIR=1", "", false},
		{"line, two proxies", line + "CHECK_FAIR=2", "", false},
		{"line, one proxy, waiters leave", "ENDLESS WAITS GIVES_UP=1 MAY_STICK PROXIES=1", "", false},
		{"line, two proxies, waiters leave", "ENDLESS WAITS GIVES_UP=1 MAY_STICK", "", false},
		{"in time, two proxies", urgent + "END=8", "", false},
		{"in time, rounds", "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS ROUNDS=3 SHORT_LOCKS", "", false},
		{"in time, gaps", urgent + "GAPS END=7", "", false},
		{"in time, waiters leave", urgent + "GIVES_UP=1 END=6", "", false},
		{"in time, waiters leave, long looks", urgent + "GIVES_UP=1 END=6 LOOK=2 CHECK_PROMPT=2", "", false},
		{"in time, holders crash", urgent + "HOLDERS_CRASH SHORT_LOCKS END=7", "", false},
		{"in time, messages are lost", urgent + "MESSAGES_MAY_BE_LOST END=7", "", false},
		{"in time, a proxy is killed", urgent + "PROXY_CRASHES HOLDERS_CRASH END=6", "", false},
		{"late, no waiting", "ROUNDS=3 SHORT_LOCKS CHECK_TOKENS", "", false},
		{"late, one proxy", late + "PROXIES=1 ROUNDS=2 SHORT_LOCKS END=6", "", false},
		{"late, two proxies", late + "ROUNDS=2 SHORT_LOCKS END=6", "", false},
		{"late, RELOCK", late + "RELOCKS=2 END=6", "", false},
		{"late, waiters leave", late + "PROXIES=1 GIVES_UP=1 SHORT_LOCKS END=6", "", false},
		{"late, a proxy is killed", late + "PROXY_CRASHES SHORT_LOCKS END=6", "", false},
		{"FENCE", late + "FENCES SHORT_LOCKS END=7", "", false},
		{"FENCE, no waiting", "FENCES SHORT_LOCKS ROUNDS=2 END=7", "", false},
		{"tokens, forgotten", "CHECK_TOKENS RETENTION=1 ROUNDS=3 SHORT_LOCKS", "", false},
		{"tokens, the clock is set back", "CHECK_TOKENS RETENTION=3 CLOCK_STEPS_BACK=2 ROUNDS=3 SHORT_LOCKS", "", false},
	}
}

var recipes = []string{"L1", "L2", "L3", "L5"}

// besidePlain is LOCK beside plain clients that may be paused between any two of their commands, with all that they may do excused.
func besidePlain() []config {
	var list []config
	for _, r := range recipes {
		one := "PLAIN1=" + r
		with := ""
		if r == "L5" {
			with = " WITHOUT=EX_ALL" // nothing needs to be excused
		}
		list = append(list,
			config{r + ", two proxies", one + with, "", false},
			config{r + ", a line", one + " WAITS POLLS PLAIN_SEEN PROXIES=1 END=6" + with, "", true},
			config{r + ", hand-over between proxies", one + " WAITS POLLS PLAIN_SEEN END=6" + with, "", true},
			config{r + ", two of them", one + " PLAIN2=" + r + " LOCKERS=1 PROXIES=1" + with, "", true},
			config{r + ", brisk", one + " GAP_TICKS=0 PLAIN_ROUNDS=2 SETTLE=3 WITHOUT=EX_ALL", "", false},
		)
	}
	return append(list,
		config{"L1 and L3", "PLAIN1=L1 PLAIN2=L3 LOCKERS=1 PROXIES=1", "", true},
		config{"L2 and L5", "PLAIN1=L2 PLAIN2=L5 LOCKERS=1 PROXIES=1", "", true},
		config{"L1, LOCK in ms", "PLAIN1=L1 MS_BESIDE_SECONDS", "", false},
		config{"L1, a proxy is killed", "PLAIN1=L1 PROXY_CRASHES", "", true},
		config{"L1, RELOCK", "PLAIN1=L1 RELOCKS=2 END=6", "", false},
		config{"L1, FENCE", "PLAIN1=L1 FENCES END=6", "", false},
	)
}
