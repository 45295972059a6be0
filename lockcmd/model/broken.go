package main

// broken are rules left out or changed: each must be caught, by the property that is there for it.
func broken() []config {
	const line = "ENDLESS WAITS LOCKERS=3 "
	const urgent = "URGENT WAITS POLLS CHECK_PROMPT=1 CHECK_TOKENS LOCKERS=3 END=6 "
	const brisk = " GAP_TICKS=0 PLAIN_ROUNDS=2 SETTLE=3 WITHOUT=EX_ALL "
	return []config{
		{"broken: plain timestamps are not considered",
			"PLAIN1=L1 BREAK_IGNORES_PLAIN", "exclusion", quick},
		{"broken: no settling", "PLAIN1=L1" + brisk + "BREAK_NO_SETTLING", "exclusion", quick},
		{"broken: settling ends with the release",
			"PLAIN1=L1" + brisk + "BREAK_NO_CARRY", "exclusion", quick},
		{"broken: nothing is put right", "PLAIN1=L1 BREAK_NO_LOOKS", "settled", quick},
		{"broken: put right whichever client has it",
			"PLAIN1=L3" + brisk + "SHORT_LOCKS BREAK_SETTLES_BLINDLY", "own_release", quick},
		{"broken: takeover by the timestamp alone",
			"PLAIN1=L1 BREAK_IGNORES_COMPANION", "exclusion", quick},
		{"broken: takeover by a proxy's clock",
			"SHORT_LOCKS BREAK_PROXY_CLOCK", "exclusion", quick},
		{"broken: release without compare", "SHORT_LOCKS BREAK_NO_COMPARE", "own_release", quick},
		{"broken: release of a plain client's lock",
			"PLAIN1=L1 BREAK_NO_COMPARE", "own_release", quick},
		{"broken: release whatever the key says",
			"PLAIN1=L1 BREAK_UNLOCK_IGNORES_VALUE", "own_release", quick},
		{"broken: RELOCK without compare",
			"SHORT_LOCKS RELOCKS=2 BREAK_RELOCK_NO_COMPARE", "own_release", quick},
		{"broken: tokens from 1 again",
			"CHECK_TOKENS ROUNDS=2 RETENTION=1 SHORT_LOCKS BREAK_TOKEN_RESET",
			"tokens_rise", quick},
		{"broken: a token is used again",
			"CHECK_TOKENS ROUNDS=2 SHORT_LOCKS BREAK_TOKEN_REUSED", "tokens_rise", quick},
		{"broken: a hand-over keeps the token",
			urgent + "BREAK_HAND_OVER_TOKEN", "tokens_rise", quick},
		{"broken: a reservation is anybody's",
			"WAITS POLLS LOCKERS=3 END=5 BREAK_RESERVATION", "reservation", quick},
		{"broken: proxies don't take turns", line + "CHECK_FAIR=2 BREAK_NO_TURNS", "fair", quick},
		{"broken: anybody in the line looks",
			line + "PROXIES=1 CHECK_FAIR=1 BREAK_ORDER", "fair", quick},
		{"broken: no look after a release",
			line + "CHECK_FAIR=2 BREAK_NO_LOOK_AFTER_RELEASE", "fair", quick},
		{"broken: kept for who has left",
			urgent + "GIVES_UP=1 BREAK_KEEPS_WHAT_LEFT", "no_dead_holder", quick},
		{"broken: a timestamp without a TTL is LOCK's",
			"PLAIN1=L1 END=6 BREAK_TTL_IGNORED", "own_release", normal},
		{"broken: an owner back isn't told that it settles",
			"PLAIN1=L1 PROXY_CRASHES OWNERS END=5 BREAK_AGAIN_IS_SILENT", "settled", normal},
		{"broken: who leaves takes the wake-up along",
			"ENDLESS WAITS GIVES_UP=1 PROXIES=1 BREAK_LOOK_IS_TAKEN_ALONG", "deadlock", normal},
		{"broken: FENCE without WATCH",
			"WAITS POLLS FENCES SHORT_LOCKS END=7 BREAK_FENCE_UNWATCHED", "fenced_writes", quick},
		{"broken: FENCE leaves a timestamp replaced",
			"PLAIN1=L1 FENCES END=6 BREAK_FENCE_LEAVES_TIMESTAMP", "fenced_writes", normal},
	}
}

// witnesses show that the model gets to where it matters: the property never_seen is broken there.
func witnesses() []config {
	const urgent = "URGENT WAITS POLLS LOCKERS=3 END=5 "
	return []config{
		{"seen: hand-over", urgent + "WITNESS=SEEN_HAND_OVER", "never_seen", normal},
		{"seen: reservation",
			"WAITS POLLS LOCKERS=3 END=4 WITNESS=SEEN_RESERVATION", "never_seen", normal},
		{"seen: takeover", "PLAIN1=L1 WITNESS=SEEN_TAKEOVER", "never_seen", normal},
		{"seen: put right", "PLAIN1=L1 WITNESS=SEEN_PUT_RIGHT", "never_seen", normal},
		{"seen: settles since the one before did",
			"PLAIN1=L1 WITNESS=SEEN_CARRIED", "never_seen", normal},
		{"seen: a plain client takes an expired LOCK",
			"PLAIN1=L1 WITNESS=SEEN_PLAIN_TAKES", "never_seen", normal},
		{"seen: given to a waiter who has left",
			urgent + "GIVES_UP=1 WITNESS=SEEN_LEFT", "never_seen", normal},
		{"seen: a look crosses with a grant",
			urgent + "WITNESS=SEEN_LOOK_GRANTED", "never_seen", normal},
		{"seen: FENCE is refused",
			"FENCES SHORT_LOCKS END=7 WITNESS=SEEN_FENCED", "never_seen", normal},
		{"seen: FENCE begins again",
			"FENCES RELOCKS=2 SHORT_LOCKS END=7 WITNESS=SEEN_FENCE_AGAIN", "never_seen", normal},
		{"seen: a companion is forgotten",
			"CHECK_TOKENS RETENTION=1 ROUNDS=2 SHORT_LOCKS WITNESS=SEEN_FORGOTTEN",
			"never_seen", normal},
		{"seen: a proxy is killed with a reservation",
			"WAITS POLLS LOCKERS=3 PROXY_CRASHES END=5 WITNESS=SEEN_KILLED", "never_seen", normal},
		{"seen: a reservation is given back",
			"WAITS POLLS GIVES_UP=1 LOCKERS=3 END=5 WITNESS=SEEN_GIVEN_BACK", "never_seen", normal},
		{"seen: a holder was paused past its timeout",
			"SHORT_LOCKS END=6 WITNESS=SEEN_PAUSED", "never_seen", normal},
	}
}
