/* Names and figures that several files use. */

#ifndef PROXIES
#define PROXIES 2
#endif
#ifndef LOCKERS
#define LOCKERS 2 /* clients that LOCK; locker i is at proxy i modulo PROXIES */
#endif
/* What a locker wants, where the lock can be shared: CLIENT0 to CLIENT3 are WRITER, READER or a limit. */
#define WRITER 0
#define READER 99
#ifdef CLIENT0
#ifndef CLIENT3
#define CLIENT3 WRITER
#endif
#ifndef CLIENT2
#define CLIENT2 WRITER
#endif
#define WANTS(i) ((i) == 0 -> CLIENT0 : ((i) == 1 -> CLIENT1 : ((i) == 2 -> CLIENT2 : CLIENT3)))
#endif
#if defined(CLIENT0) && (defined(GIVES_UP) || !defined(ENDLESS))
#define ABANDONS /* a lock can be given to a waiter who does not want it any more */
#endif
#ifdef UNBLOCKS
#define MAY_LEAVE /* a waiter can have left the line when it is given the lock */
#endif
#ifdef UPGRADES /* so many of the lockers, the first ones, ask to be the only holder when they share the lock */
#define MAY_UPGRADE(i) ((i) < UPGRADES && WANTS(i) != WRITER)
#endif
#ifdef ONCES
#define MAY_LEAVE
#endif
#if defined(PLAIN2)
#define PLAINS 2 /* PLAIN1 and PLAIN2 are L1, L2, L3, L5 or NXPX */
#elif defined(PLAIN1)
#define PLAINS 1
#else
#define PLAINS 0
#endif
#define AGENTS (LOCKERS + PLAINS) /* the lockers first */
#define HOME(i) ((i) % PROXIES)

/* Times, in ticks. A tick is whatever is short next to the others, from a millisecond to a look of the waiters. */
#define START 2
#ifndef END
#define END 8 /* time stops here */
#endif
#ifndef TIMEOUT
#define TIMEOUT 4 /* of LOCK */
#endif
#ifdef PLACE /* the locker that asks without waiting, and has a place in the line instead */
#ifndef KEEP
#define KEEP 2 /* its place is kept so long after it last asked */
#endif
#ifdef BREAK_PLACE_MARGIN
#define PLACE_MARGIN 0
#else
#define PLACE_MARGIN 1 /* queue/keep.go: placeMargin */
#endif
bit placed;
byte place_until;
#define PLACE_LASTS ((place_until - now) * (place_until > now) + PLACE_MARGIN)
#define TIMEOUT_OF(i) ((i) == PLACE && placed -> PLACE_LASTS : TIMEOUT)
#elif defined(SHORT_LOCKS)
#define TIMEOUT_OF(i) ((i) % 2 -> 1 : TIMEOUT)
#else
#define TIMEOUT_OF(i) TIMEOUT
#endif
#ifndef PLAIN_TIMEOUT
#define PLAIN_TIMEOUT 2
#endif
#ifndef SETTLE
#define SETTLE 2 /* grace.go */
#endif
#ifndef RESERVATION
#define RESERVATION 1 /* script/unlock.go: Reservation */
#endif
#ifndef DEAF_RESERVATION
#define DEAF_RESERVATION 2 /* script/unlock.go: pollReservation; longer than LOOK */
#endif
#ifndef OFFER_PATIENCE
#define OFFER_PATIENCE 1 /* wait.go: offerPatience */
#endif
#ifndef LOOK
#define LOOK 1 /* queue/pause.go: MaxPoll */
#endif
#ifndef FRESH
#define FRESH 3 /* waiting.lua: how long a proxy counts as waiting; take.lua: after how long it is noted again */
#endif
#ifndef REFRESH
#define REFRESH 1
#endif
#define HEAD_START 1 /* waiting.lua */
#ifndef RETENTION
#define RETENTION 3 /* --fence-retention */
#endif
#ifndef STAYS_UP_TO
#define STAYS_UP_TO TIMEOUT /* unlock.lua: the longest timeout of which a release leaves the record; there it is RETENTION */
#endif
#ifndef PER_TICK
#define PER_TICK 4 /* tokens that the upstream's clock has within a tick */
#endif
#ifndef GUARD
#define GUARD 0 /* --takeover-guard */
#endif
#define NEVER 255

/* How often each client takes the lock. */
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef PLAIN_ROUNDS
#define PLAIN_ROUNDS 1
#endif

mtype = { RELEASED, HELD, RESERVED, SHARED };         /* read.lua: state */
mtype = { TRY, FIRST };                            /* lock.lua: how */
mtype = { NONE, NEXT, FAIR, SELF, FREE, GAP };     /* unlock.lua: what a release wishes for the waiters of its proxy */
mtype = { IDLE, WAITING, OFFERED, GRANTED, LEFT }; /* queue/waiter.go */

#define NOBODY  255
#define BY_LOCK 255 /* who wrote what is at the key, if no foreign client */

/* SAME_OWNER: lockers 0 and 1 are two connections of one owner. */
#ifdef SAME_OWNER
#define OF_ONE_OWNER(a, b) ((a) < 2 && (b) < 2)
#else
#define OF_ONE_OWNER(a, b) ((a) == (b))
#endif

bit dead[PROXIES];
#ifdef UNBLOCKS
bit told_unblocked; /* CLIENT UNBLOCK has been answered 1 for the wait of that locker */
#endif
#ifdef OWED /* the locker whose client has sent something before, which is answered at any time, or never */
bit owed_waits; /* it is in the line already */
#define WAITERS(p) (len(line[p]) - (HOME(OWED) == p && owed_waits))
#else
#define WAITERS(p) len(line[p])
#endif
#if PROXIES > 1
#define SOMEBODY_WAITS ((WAITERS(0) > 0 && !dead[0]) || (WAITERS(1) > 0 && !dead[1]))
#else
#define SOMEBODY_WAITS (WAITERS(0) > 0 && !dead[0])
#endif
bit looked;   /* repair.lua has run since the clock has moved */
bit no_looks; /* the proxy that looked after a takeover has been killed, and none has begun again */

/* What a run shows is found by breaking it: the assertion bears the name of the property. */
hidden byte exclusion, limit, tokens_rise, own_release, settled, fair, reservation, fenced_writes, prompt, no_dead_holder, made_once, fresh_value, all_or_none, as_told, bounded, in_turn, never_seen;

/* A run with WITNESS shows that the model gets somewhere at all. */
#ifndef WITNESS
#define WITNESS 0
#endif
#define WITNESSED(what) if :: WITNESS == what -> assert(never_seen) :: else fi

#define SEEN_HAND_OVER    1 /* a release gives the lock to the waiter it names */
#define SEEN_RESERVATION  2 /* a waiter of another proxy takes what was reserved for it */
#define SEEN_PUT_RIGHT    3 /* repair.lua finds a timestamp changed */
#define SEEN_CARRIED      4 /* a lock that is taken free settles, since the one before did */
#define SEEN_LEFT         5 /* a lock is given to a waiter who has left */
#define SEEN_LOOK_GRANTED 6 /* a look finds that a release has granted the lock already */
#define SEEN_FENCED       7 /* FENCE is refused */
#define SEEN_FENCE_AGAIN  8 /* FENCE's transaction is aborted, and begins again */
#define SEEN_FORGOTTEN    9 /* a token is given when the lock record has been forgotten */
#define SEEN_TAKEOVER    10 /* a foreign client's expired lock is taken over */
#define SEEN_PLAIN_TAKES 11 /* a foreign client takes a lock that LOCK has let expire */
#define SEEN_KILLED      12 /* a proxy is killed that has a waiter and has been told that the lock is reserved for it */
#define SEEN_PAUSED      13 /* a holder who was paused past its timeout releases, when another has the lock */
#define SEEN_GIVEN_BACK  14 /* a proxy gives back what is reserved for it, since nobody waits there any more */
#define SEEN_STAYED      15 /* a lock is taken whose record the release before has left as it was */
#define SEEN_OTHER       16 /* LOCK is refused by another library's lock */
#define SEEN_NXPX        17 /* another library takes a lock whose record says that it is held: it has expired */
#define SEEN_TOGETHER    18 /* a script gives the lock to several */
#define SEEN_JOINS       19 /* a lock is given to one more while others share it */
#define SEEN_PRUNED      20 /* a holder that is over is left out */
#define SEEN_LEAVES_OTHERS 21 /* a release leaves others that share the lock */
#define SEEN_SHARED_VALUE  23 /* a waiter is given the value that another has read */
#define SEEN_MADE_MEANWHILE 24 /* once.lua finds a value where a GET has found none */
#define SEEN_HANDED_CLAIM  25 /* a claim that is given up goes to a waiter */
#define SEEN_SERVED_NAMED  26 /* a waiter is given the value while a release names it */
#define SEEN_UNBLOCKED     27 /* a wait is ended while its poll is under way, which takes the lock */
#define SEEN_SAME_OWNER    29 /* an owner is given the lock that another of its connections has */
#define SEEN_ORPHAN_KEPT   30 /* a connection has closed whose owner has the lock by another, too */
#define SEEN_AT_MAX        31 /* a holder's MAX has passed while it held the lock */
#define SEEN_LATE_GRANT    32 /* a late answer gives a waiter the lock that it still waits for */
#define SEEN_LATE_FREED    33 /* a late answer brings a lock that nobody wants any more */
#define SEEN_FREED_BY_NAME 34 /* a lock is released that a question took whose answer was lost */
#define SEEN_UPGRADED      35 /* one of several holders becomes the only one */
#define SEEN_UPGRADE_OVER  36 /* a holder that waits to be the only one gives that up */
#define SEEN_BOTH_UPGRADE  37 /* a second one is told that it would wait for the first */
#define SEEN_PLACE_TAKEN   38 /* a client asks again, and gets the lock that its place has taken */
#define SEEN_PLACE_OVER    39 /* the time of a place that has the lock is over */
#define SEEN_PLACE_LEAVES  40 /* that of one that waits is over */
#define SEEN_PLACE_LOST    41 /* a client asks again when the lock of its place is over */
#define SEEN_WAITS_NO_MORE 22 /* a proxy says that nobody waits there for a lock that is shared */
