package model

// residues are what foreign clients may still do to a lock of LOCK's, as is promised and no better.
// Each search excuses all but one: nextToForeign shows that beyond these, and what findings lists,
// there is nothing.
func residues() []config {
	const two = " END=6 LOCKERS=1 PROXIES=1"
	return []config{
		{"residue: a shorter timestamp is believed",
			"PLAIN1=L1 WITHOUT=EX_SHORTER", "exclusion", normal},
		{"residue: DEL and SETNX while it settles",
			"PLAIN1=L1 PLAIN2=L1 WITHOUT=EX_DEL_SETNX" + two, "exclusion", normal},
		{"residue: DEL frees the lock", "PLAIN1=L1 WITHOUT=EX_DELETED", "exclusion", normal},
		{"residue: a loser is later than the settling",
			"PLAIN1=L3 END=7 WITHOUT=EX_CHANGED", "exclusion", normal},
		{"residue: plain clients among themselves",
			"PLAIN1=L1 PLAIN2=L1 WITHOUT=EX_PLAIN" + two, "exclusion", normal},
		{"residue: a plain client judges late",
			"PLAIN1=L1 PLAIN2=L1 WITHOUT=EX_SLOW" + two, "exclusion", normal},
		{"residue: tokens, forgotten, clock set back",
			"CHECK_TOKENS RETENTION=1 CLOCK_STEPS_BACK=2 ROUNDS=3 SHORT_LOCKS",
			"tokens_rise", normal},
	}
}

// findings are what the model has shown that was not foreseen. Where a changed rule would close it,
// the search with that rule finds nothing.
func findings() []config {
	// Nobody is later between two commands than a lock settles.
	const prompt = "PLAIN1=L1 GAP_TICKS=1 SETTLE=3 TIMEOUT=3 END=7 "
	return []config{
		{"finding: the loser saw an expired LOCK",
			prompt + "WITHOUT=EX_FRESH", "exclusion", normal},
		{"finding: the same, where there is a guard",
			"PLAIN1=L2 PLAIN_TIMEOUT=1 GAP_TICKS=1 SETTLE=3 TIMEOUT=3 GUARD=1 END=9 " +
				"WITHOUT=EX_FRESH",
			"exclusion", normal},
		{"... closed if such a lock settled",
			prompt + "WITHOUT=EX_FRESH PROPOSED_SETTLES_AFTER_EXPIRY", "", normal},
		{"finding: the loser saw a LOCK, released since",
			prompt + "WITHOUT=EX_CHANGED", "exclusion", normal},
		{"finding: a loser writes after the last look",
			"PLAIN1=L1 WITHOUT=EX_LATE", "exclusion", normal},
	}
}
