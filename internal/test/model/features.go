package model

// The searches of commands and options that are built on LOCK: ONCE and DONE, CLIENT UNBLOCK, MAX,
// several connections of an OWNER, LOCKALL, and PLACE; and of clients and connections that keep a
// wait from its answer.
const (
	onceTime = "URGENT WAITS POLLS CHECK_TOKENS ONCES=1 "
	onceLate = "WAITS POLLS CHECK_TOKENS ONCES=1 SHORT_LOCKS "
	unblocks = "URGENT WAITS POLLS CHECK_TOKENS LOCKERS=3 UNBLOCKS=2 "
	maxTime  = "URGENT WAITS POLLS CHECK_TOKENS MAX=3 TIMEOUT=2 END=8 "
	owners   = "SAME_OWNER CHECK_TOKENS SHORT_LOCKS "
	lockAll  = "ALLS=1 LOCKERS=3 ROUNDS=2 "
	owedTime = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS LOCKERS=3 OWED=0 END=6"
	owedLine = "ENDLESS WAITS LOCKERS=3 OWED=0 "
	placed   = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS PLACE=0 END=6 "
	placeTry = "WAITS POLLS CHECK_TOKENS PLACE=0 "
	silent   = "URGENT WAITS POLLS CHECK_TOKENS CHECK_PROMPT=3 SILENT=1 "
)

func features() []config {
	return []config{
		{"ONCE, line", "ENDLESS WAITS ONCES=1", "", quick},
		{"ONCE, in time", onceTime + "CHECK_PROMPT=1 LOCKERS=3 END=5", "", normal},
		{"ONCE, in time, one proxy",
			onceTime + "CHECK_PROMPT=1 LOCKERS=3 PROXIES=1 END=5", "", normal},
		{"ONCE, in time, rounds", onceTime + "CHECK_PROMPT=1 ROUNDS=2 END=6", "", normal},
		{"ONCE, in time, makers crash",
			onceTime + "CHECK_PROMPT=1 HOLDERS_CRASH TIMEOUT=2 LOCKERS=3 END=5", "", normal},
		{"ONCE, late", onceLate + "ROUNDS=2 END=5", "", normal},
		{"ONCE, late, makers crash", onceLate + "PROXIES=1 HOLDERS_CRASH END=6", "", normal},
		{"ONCE, UNBLOCK", onceTime + "CHECK_PROMPT=1 LOCKERS=3 UNBLOCKS=2 END=4", "", normal},
		{"UNBLOCK, in time", unblocks + "CHECK_PROMPT=1 END=6", "", normal},
		{"UNBLOCK, late", "WAITS POLLS CHECK_TOKENS UNBLOCKS=1 SHORT_LOCKS END=6", "",
			quick},
		{"MAX, in time", maxTime + "CHECK_PROMPT=1", "", quick},
		{"MAX, late", "WAITS POLLS CHECK_TOKENS MAX=2 TIMEOUT=2 END=6", "", quick},
		{"owner, two connections", owners + "ROUNDS=3 END=7", "", normal},
		{"owner, two connections, and another", owners + "LOCKERS=3 ROUNDS=2 END=5", "", normal},
		{"LOCKALL, next to LOCK", lockAll, "", quick},
		{"LOCKALL, two of them", "ALLS=2 LOCKERS=3 ROUNDS=2", "", quick},
		{"LOCKALL, two of them, two LOCKs", "ALLS=2 LOCKERS=4 ROUNDS=2", "", normal},
		{"owed, in time", owedTime, "", quick},
		{"owed, line", owedLine + "CHECK_FAIR=2", "", normal},
		{"PLACE, in time", placed + "LOCKERS=3", "", normal},
		{"PLACE, in time, one proxy", placed + "LOCKERS=3 PROXIES=1", "", normal},
		{"PLACE, late", placeTry + "END=6", "", quick},
		{"PLACE, late, three", placeTry + "LOCKERS=3 END=4", "", normal},
		{"silent", silent + "END=6", "", quick},
		{"silent, waiters leave", silent + "GIVES_UP=1 END=5", "", normal},
		{"silent, UNBLOCK", silent + "UNBLOCKS=1 END=5", "", normal},
	}
}

func brokenFeatures() []config {
	return []config{
		{"ONCE, broken: the claim is taken blindly",
			onceTime + "LOCKERS=3 END=5 BREAK_CLAIMS_BLINDLY", "made_once", quick},
		{"ONCE, broken: DONE without compare", onceLate + "END=6 BREAK_DONE_NO_COMPARE",
			"own_release", quick},
		{"ONCE, broken: DONE tells nobody",
			onceTime + "LOCKERS=3 LOOK=3 CHECK_PROMPT=1 END=7 BREAK_DONE_TELLS_NOBODY", "prompt",
			quick},
		{"ONCE, broken: who came since is served too",
			onceTime + "LOCKERS=3 PROXIES=1 END=5 BREAK_SERVES_LATECOMERS", "fresh_value", quick},
		{"UNBLOCK, broken: it tells and ends nothing",
			unblocks + "END=6 BREAK_UNBLOCK_ENDS_NOTHING", "as_told", quick},
		{"MAX, broken: renewed for ever", maxTime + "BREAK_MAX_IS_RENEWED", "bounded", quick},
		{"MAX, broken: released before its client is told",
			maxTime + "BREAK_MAX_RELEASES_FIRST", "own_release", quick},
		{"owner, broken: a connection that closes frees it",
			owners + "END=6 BREAK_DISCONNECTED_FREES", "own_release", quick},
		{"owner, broken: the record knows the last one alone",
			owners + "END=6 BREAK_FORGETS_CONNECTIONS", "own_release", quick},
		{"owed, broken: it begins to wait while it is owed an answer",
			owedTime + " BREAK_BEGINS_WHILE_OWED", "prompt", quick},
		{"owed, broken: the same, where no time passes",
			owedLine + "BREAK_BEGINS_WHILE_OWED", "deadlock", quick},
		{"PLACE, broken: its lock outlasts it",
			placed + "BREAK_PLACE_OVERSTAYS", "bounded", quick},
		{"PLACE, broken: it stays in the line", placed + "BREAK_PLACE_STAYS", "bounded", quick},
		{"PLACE, broken: its lock lasts no longer than it", placed + "BREAK_PLACE_MARGIN",
			"in_turn", quick},
		{"PLACE, broken: what it had is taken blindly",
			placeTry + "LOCKERS=3 END=6 BREAK_PLACE_TAKEN_BLINDLY", "own_release", quick},
		{"silent, broken: a question has no end",
			silent + "END=6 BREAK_NO_END", "no_dead_holder", quick},
		{"silent, broken: one who has left is given it",
			silent + "UNBLOCKS=1 END=5 BREAK_LATE_ANSWER_COUNTS", "as_told", quick},
		{"silent, broken: what may have been taken is left",
			silent + "GIVES_UP=1 END=6 BREAK_RELEASES_NOTHING_UNKNOWN", "no_dead_holder", quick},
		{"silent, broken: it runs in the millisecond of its end",
			silent + "GIVES_UP=1 END=6 BREAK_ENDS_LATE", "no_dead_holder", quick},
		{"silent, broken: the answer is lost before its client is told",
			silent + "UNBLOCKS=1 END=5 BREAK_LOST_BEFORE_IT_IS_TOLD", "no_dead_holder", quick},
		{"LOCKALL, broken: takes what is free",
			lockAll + "BREAK_ALL_TAKES_PART", "all_or_none", quick},
		{"LOCKALL, broken: the token of the first key",
			lockAll + "BREAK_ALL_FIRST_TOKEN", "tokens_rise", quick},
		{"LOCKALL, broken: waits in one queue",
			lockAll + "BREAK_ALL_WAITS_IN_ONE", "deadlock", quick},
		{"LOCKALL, broken: a release does not wake it",
			lockAll + "BREAK_ALL_IS_NOT_WOKEN", "deadlock", quick},
	}
}

func seenFeatures() []config {
	const once = onceTime + "LOCKERS=3 END=5 "
	return []config{
		{"ONCE, seen: a value is shared", once + "WITNESS=SEEN_SHARED_VALUE", "never_seen", normal},
		{"ONCE, seen: made since the GET",
			once + "WITNESS=SEEN_MADE_MEANWHILE", "never_seen", normal},
		{"ONCE, seen: a claim is handed over",
			once + "WITNESS=SEEN_HANDED_CLAIM", "never_seen", normal},
		{"ONCE, seen: served while a release names it",
			once + "WITNESS=SEEN_SERVED_NAMED", "never_seen", normal},
		{"UNBLOCK, seen: its poll takes the lock",
			unblocks + "END=6 WITNESS=SEEN_UNBLOCKED", "never_seen", normal},
		{"MAX, seen: it is over", maxTime + "WITNESS=SEEN_AT_MAX", "never_seen", normal},
		{"PLACE, seen: its client takes the lock over",
			placed + "WITNESS=SEEN_PLACE_TAKEN", "never_seen", normal},
		{"PLACE, seen: it is over with the lock",
			placed + "WITNESS=SEEN_PLACE_OVER", "never_seen", normal},
		{"PLACE, seen: it is over without",
			placed + "WITNESS=SEEN_PLACE_LEAVES", "never_seen", normal},
		{"PLACE, seen: its client is too late",
			placeTry + "END=6 WITNESS=SEEN_PLACE_LOST", "never_seen", normal},
		{"silent, seen: a late answer is its waiter's",
			silent + "END=5 WITNESS=SEEN_LATE_GRANT", "never_seen", normal},
		{"silent, seen: what a late answer brings is released",
			silent + "UNBLOCKS=1 END=5 WITNESS=SEEN_LATE_FREED", "never_seen", normal},
		{"silent, seen: what was taken is released without an answer",
			silent + "GIVES_UP=1 END=5 WITNESS=SEEN_FREED_BY_NAME", "never_seen", normal},
		{"owner, seen: both have it", owners + "WITNESS=SEEN_SAME_OWNER", "never_seen", normal},
		{"owner, seen: one closes, the other keeps it",
			owners + "WITNESS=SEEN_ORPHAN_KEPT", "never_seen", normal},
	}
}
