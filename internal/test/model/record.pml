/* The upstream's clock, and what upstream.pml and shared.pml have in common of a lock record and of the scripts. */

byte now = START;

/* The lock record, as read.lua takes it apart; token 0 is none. */
byte token, expires, forgotten; /* forgotten: when Redis removes the lock record */
mtype state = RELEASED;
byte connection;                /* the locker that holds it, or the proxy that it is reserved for */
#ifdef SAME_OWNER
byte given_to;                  /* the connections that were given it, a bit each */
#endif
bit request;                    /* which of that locker's requests; they alternate */
byte waiting1, waiting2;        /* proxies with waiters, + 1, the longest waiting first; 0 is none */
byte seen[PROXIES];

/* late.pml: which question is asked. */
#ifdef SILENT
#ifndef BOUND
#define BOUND 1 /* queue/poll.go: AnswerBy; nothing is asked again before it is over */
#endif
#define BY_REQUEST 253 /* ReleaseProof: what a request has taken, whatever the token */

mtype = { NOTHING, SENT, RAN, STRAY }; /* STRAY: its connection is lost, and it can still run */
mtype late = NOTHING;
byte silences;
byte late_of, late_until;
bit late_req;
bit late_own;       /* it is no first script of a wait, and goes by a connection of the proxy's own, which can be lost before it runs */
byte late_token;    /* what it has taken */
byte late_has;      /* what its wait was given */
bit late_unknown;   /* its waiter has asked again */
byte late_releases; /* releaseTwice: how many are to come */
byte late_frees;    /* what is being released */

#define LATE_BUSY    (late != NOTHING || late_unknown || late_releases > 0 || late_frees > 0)
#define OWES_LATE(w) ((late == SENT || late == RAN) && late_of == w && !late_own) /* its first script goes by the client's connection: what comes later is behind it */
#define MAY_BEGIN(w) (!OWES_LATE(w) && !(LATE_BUSY && late_of == w && late_req != reqs[w])) /* reqs is but one bit */
bit asks_late;  /* the late one */
bit late_open;  /* its wait is not over */
bit late_rests; /* it does nothing in this tick any more */
#define FOR_NOBODY (asks_late && !late_open)
inline late_rests_no_more() { late_rests = 0 }
#else
#define FOR_NOBODY false
#define LATE_BUSY  false
inline late_rests_no_more() { skip }
#endif

/* What a script answers. */
hidden byte r_token;         /* lock, unlock: the token given, or 0 */
hidden byte r_until;         /* lock: when what refused it expires */
hidden byte r_freed, r_self; /* unlock, relock */

hidden byte k_, held, at, given, entry, reserved_for, lasting_, but_, others_first;

/* waiting.lua: waiting_proxies. Drops the proxies not seen lately, and `but` (a proxy + 1, or 0). */
inline rivals(but) {
  if :: waiting2 > 0 && (waiting2 == but || now - seen[waiting2 - 1] >= FRESH) -> waiting2 = 0 :: else fi;
  if :: waiting1 > 0 && (waiting1 == but || now - seen[waiting1 - 1] >= FRESH) -> waiting1 = waiting2; waiting2 = 0 :: else fi
}

inline add_rival(p) {
  if :: waiting1 == 0 -> waiting1 = p + 1 :: else -> waiting2 = p + 1 fi;
  seen[p] = now
}

/* take.lua: enlist. It is listed, with its place if it has one. */
inline list_again(p) {
  if
  :: (waiting1 == p + 1 || waiting2 == p + 1) && now - seen[p] < FRESH -> rivals(0); seen[p] = now
  :: else -> but_ = p + 1; rivals(but_); add_rival(p)
  fi
}

hidden byte lapsed, behind, rival_;

/* waiting.lua: lapsed. The lock has just run out. */
inline find_lapsed() { lapsed = token > 0 && expires > 0 && !held && now >= over && now < over + HEAD_START }

#ifdef BREAK_TRIES_OVERTAKE
#define TRIES_STAND_BACK false
#else
#define TRIES_STAND_BACK true
#endif

/* take.lua: behind_until. Whether a waiter of the other proxy goes first although the lock is free. */
inline find_behind(p, how_, taken) {
  find_lapsed();
  rival_ = (waiting1 == p + 1 -> waiting2 : waiting1);
  behind = !(taken) && rival_ > 0 && now - seen[rival_ - 1] < FRESH &&
    (how_ == TRY && TRIES_STAND_BACK || how_ == FIRST && lapsed && rival_ == waiting1)
}

/* unlock.lua: take_next; there is but one other. PUBLISH tells how many hear of it. */
inline take_next() {
  reserved_for = waiting1; entry = waiting1 - 1;
  if
  :: !dead[entry] -> publish(entry); waiting1 = 0
  :: dead[entry] -> waiting1 = 0 /* Redis need not know yet */
  :: dead[entry] -> reserved_for = 0; waiting1 = 0
#ifdef MESSAGES_MAY_BE_LOST
  :: !dead[entry] -> reserved_for = 0; waiting1 = 0 /* it isn't listening just now */
  :: lasting_ = DEAF_RESERVATION; waiting1 = 0 /* it can't be told, and has waited long enough */
  :: reserved_for = 0 /* it can't be told, and has not */
#endif
  fi
}

#if defined(ENDLESS) && defined(CLIENT0)
#define TOKEN_AFTER(t) 1 /* no time passes, so that nothing is released too late */
#elif defined(ENDLESS)
#define TOKEN_AFTER(t) ((t) % 4 + 1)
#else
#define TOKEN_AFTER(t) ((t) + 1)
#endif

inline next_token() {
#ifdef CHECK_TOKENS
  if :: token == 0 && highest > 0 -> WITNESSED(SEEN_FORGOTTEN) :: else fi;
#endif
#if defined(ENDLESS)
  given = TOKEN_AFTER(token) /* where no clock runs it is enough to tell them apart */
#elif defined(BREAK_TOKEN_RESET)
  given = token + 1
#elif defined(BREAK_TOKEN_REUSED)
  given = (now * PER_TICK > token -> now * PER_TICK : token)
#else
  given = (now * PER_TICK > token + 1 -> now * PER_TICK : token + 1)
#endif
}

