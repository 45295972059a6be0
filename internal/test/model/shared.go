package model

// Locks that can be shared, among LOCK themselves: two readers, a writer, and clients that ask for
// it up to a limit of two. Client i is at proxy i modulo 2.
const (
	readers = "LOCKERS=3 CLIENT0=READER CLIENT1=READER CLIENT2=WRITER "
	apart   = "LOCKERS=3 CLIENT0=READER CLIENT1=WRITER CLIENT2=READER "
	limits  = "LOCKERS=3 CLIENT0=2 CLIENT1=2 CLIENT2=2 "
	mixed   = "LOCKERS=3 CLIENT0=READER CLIENT1=2 CLIENT2=WRITER "
	all     = "LOCKERS=4 CLIENT0=READER CLIENT1=READER CLIENT2=WRITER CLIENT3=2 "

	sharedLine = "ENDLESS WAITS "
	sharedTime = "URGENT WAITS POLLS CHECK_TOKENS CHECK_PROMPT=1 "
	// A writer that waited at a killed proxy keeps readers out until that proxy's claim is too old.
	sharedKill = "URGENT WAITS POLLS CHECK_TOKENS CHECK_PROMPT=3 "
	sharedLate = "WAITS POLLS CHECK_TOKENS "
	// A reader that gives up to wait to be the only holder bars others until its claim is too old.
	upgradeTime = "URGENT WAITS POLLS CHECK_TOKENS CHECK_PROMPT=3 UPGRADES=2 "
	upgradeLine = "ENDLESS WAITS UPGRADES=3 PATIENT "
	fourCrash   = all + "PROXIES=1 HOLDERS_CRASH SHORT_LOCKS END=5 "
)

func shared() []config {
	return []config{
		{"shared, line, one proxy", sharedLine + readers + "PROXIES=1 CHECK_FAIR=1", "", quick},
		{"shared, line, limit, one proxy", sharedLine + limits + "PROXIES=1 CHECK_FAIR=2", "", quick},
		{"shared, line, two proxies", sharedLine + readers + "CHECK_FAIR=2", "", normal},
		{"shared, line, readers together", sharedLine + apart + "CHECK_FAIR=2", "", normal},
		{"shared, line, limit", sharedLine + limits + "CHECK_FAIR=3", "", normal},
		{"shared, line, limit and others", sharedLine + mixed + "CHECK_FAIR=2", "", normal},
		{"shared, line, four", sharedLine + all + "PROXIES=1 CHECK_FAIR=2", "", large},
		{"shared, line, waiters leave", sharedLine + readers + "PROXIES=1 GIVES_UP=1", "", large},
		{"shared, in time", sharedTime + readers + "END=6", "", quick},
		{"shared, in time, holders crash",
			sharedTime + readers + "HOLDERS_CRASH SHORT_LOCKS END=7", "", quick},
		{"shared, in time, limit, holders crash",
			sharedTime + limits + "HOLDERS_CRASH SHORT_LOCKS END=7", "", normal},
		{"shared, in time, four, holders crash", sharedTime + fourCrash, "", large},
		{"shared, in time, waiters leave", sharedTime + readers + "GIVES_UP=1 END=6", "", large},
		{"shared, in time, a proxy is killed",
			sharedKill + readers + "PROXY_CRASHES HOLDERS_CRASH END=6", "", normal},
		{"shared, upgrade, line, one proxy", upgradeLine + readers + "PROXIES=1", "", quick},
		{"shared, upgrade, line", upgradeLine + apart, "", normal},
		{"shared, upgrade, in time", upgradeTime + readers + "END=5", "", normal},
		{"shared, upgrade, in time, limit", upgradeTime + limits + "END=5", "", normal},
		{"shared, upgrade, in time, holders crash",
			upgradeTime + apart + "HOLDERS_CRASH SHORT_LOCKS END=5", "", normal},
		{"shared, upgrade, late", sharedLate + readers + "UPGRADES=2 END=4", "", normal},
		{"shared, late", sharedLate + readers + "END=4", "", normal},
	}
}

func brokenShared() []config {
	const crash = "HOLDERS_CRASH SHORT_LOCKS END=5 "
	return []config{
		{"shared, broken: a reader next to a writer",
			sharedTime + readers + "END=6 BREAK_READER_NEXT_TO_WRITER", "exclusion", quick},
		{"shared, broken: the first release frees all",
			sharedTime + readers + "END=6 BREAK_FIRST_FREES_ALL", "own_release", quick},
		{"shared, broken: it lasts as its newest holder",
			sharedTime + readers + crash + "BREAK_LASTS_AS_THE_NEWEST", "own_release", quick},
		{"shared, broken: one too many after a crash",
			sharedTime + "LOCKERS=3 CLIENT0=2 CLIENT1=2 CLIENT2=1 " + crash +
				"BREAK_COUNTS_WHAT_IS_OVER_TWICE", "limit", quick},
		{"shared, broken: readers overtake elsewhere",
			sharedLine + apart + "CHECK_FAIR=2 BREAK_OVERTAKES_WRITERS", "fair", quick},
		{"shared, broken: readers overtake here",
			sharedLine + readers + "PROXIES=1 CHECK_FAIR=1 BREAK_OFFERS_PAST_WRITERS", "fair", quick},
		{"shared, broken: no look after a grant",
			sharedLine + readers + "CHECK_FAIR=2 BREAK_NO_LOOK_AFTER_GRANT", "fair", quick},
		{"shared, broken: no look after a release",
			sharedLine + readers + "CHECK_FAIR=2 BREAK_NO_LOOK_AFTER_RELEASE", "fair", quick},
		{"shared, broken: a release tells no sharers",
			sharedTime + limits + "LOOK=3 END=7 BREAK_TELLS_NOBODY", "prompt", quick},
		{"shared, broken: a writer leaves and bars them",
			sharedTime + readers + "GIVES_UP=1 LOOK=3 END=7 PROXIES=1 BREAK_BARS_NOBODY", "prompt",
			quick},
		{"shared, broken: the last writer leaves silently",
			sharedTime + readers + "GIVES_UP=1 LOOK=3 END=7 BREAK_LEAVES_SILENTLY", "prompt", quick},
		{"shared, broken: a wake-up puts a look off",
			sharedTime + fourCrash + "BREAK_WAKE_PUTS_OFF", "prompt", large},
		{"shared, broken: a reader that is not alone becomes the writer",
			upgradeTime + readers + "END=6 BREAK_UPGRADE_COUNTS_NOBODY", "exclusion", quick},
		{"shared, broken: the writer that it becomes keeps its token",
			upgradeTime + readers + "END=6 BREAK_UPGRADE_KEEPS_TOKEN", "tokens_rise", quick},
		{"shared, broken: two wait to be the only one",
			upgradeLine + readers + "PROXIES=1 BREAK_BOTH_WAIT", "deadlock", quick},
		{"shared, broken: kept for who has left",
			sharedTime + readers + "GIVES_UP=1 END=6 BREAK_KEEPS_WHAT_LEFT", "no_dead_holder", quick},
	}
}

func seenShared() []config {
	const time = sharedTime + apart + "END=6 "
	return []config{
		{"shared, seen: given to several", time + "WITNESS=SEEN_TOGETHER", "never_seen", normal},
		{"shared, seen: given to one more", time + "WITNESS=SEEN_JOINS", "never_seen", normal},
		{"shared, seen: a holder is over",
			sharedTime + limits + "HOLDERS_CRASH SHORT_LOCKS END=6 WITNESS=SEEN_PRUNED",
			"never_seen", normal},
		{"shared, seen: others keep it", time + "WITNESS=SEEN_LEAVES_OTHERS", "never_seen", normal},
		{"shared, seen: one becomes the only holder",
			upgradeTime + readers + "END=6 WITNESS=SEEN_UPGRADED", "never_seen", normal},
		{"shared, seen: it gives that up",
			upgradeTime + readers + "END=6 WITNESS=SEEN_UPGRADE_OVER", "never_seen", normal},
		{"shared, seen: two want it",
			upgradeTime + readers + "END=6 WITNESS=SEEN_BOTH_UPGRADE", "never_seen", normal},
		{"shared, seen: a reservation", time + "WITNESS=SEEN_RESERVATION", "never_seen", normal},
		{"shared, seen: nobody waits any more",
			time + "GIVES_UP=1 WITNESS=SEEN_WAITS_NO_MORE", "never_seen", normal},
		{"shared, seen: given to a waiter who has left",
			time + "GIVES_UP=1 WITNESS=SEEN_LEFT", "never_seen", normal},
	}
}
