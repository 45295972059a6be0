/* The upstream of a lock that can be shared: as upstream.pml, but without foreign clients, so that
nothing settles and the key holds what LOCK has written, or is missing. The sorted set has at most
one holder for each locker, since one request of a client is its own at a time. */

bit key; /* whether there is a key */

/* The holders of a shared lock, by the locker. */
byte h_until[LOCKERS]; /* 0: none */
byte h_token[LOCKERS];
bit h_request[LOCKERS];

byte how[PROXIES]; /* what the first waiter of a proxy in the record wants: as WANTS */

hidden byte r_given;  /* lock, unlock: to how many */
hidden byte r_shared;  /* lock: others share it */
hidden byte holders, given_, s_, asked_, longest;
hidden short list_;
hidden byte again, answered, listed, over;
hidden byte next_, wants_; /* share: who is left, + 1, or 0; what that one wants */

/* The requests that a script is told of, in order: each is three bits, the first the lowest. */
#define FIRST_OF(list)  (((list) & 7) - 1)
#define REST_OF(list)   ((list) >> 3)
#define AHEAD(i, list)  (((list) << 3) | ((i) + 1))

#define SHARES(i)       (WANTS(i) != WRITER)
#define NO_LIMIT(p)     (how[p] == READER)
#define HAS_IT(i)       (h_until[i] > now && h_request[i] == reqs[i])

/* relock.lua: a holder that waits to be the only one is in front of the proxies that wait, as long as it asks again. */
#ifdef UPGRADES
byte upgrader, up_seen; /* the locker, + 1; 0: none */
hidden byte r_up;       /* relock_exclusive_lua: as SCRIPT says */
#define OTHER_HOLDS(i, a) ((a) != (i) && h_until[a] > now)
#if LOCKERS > 3
#define OTHERS_HOLD(i) (OTHER_HOLDS(i, 0) || OTHER_HOLDS(i, 1) || OTHER_HOLDS(i, 2) || OTHER_HOLDS(i, 3))
#else
#define OTHERS_HOLD(i) (OTHER_HOLDS(i, 0) || OTHER_HOLDS(i, 1) || OTHER_HOLDS(i, 2))
#endif
#define UPGRADING (upgrader > 0 && now - up_seen < FRESH)
#ifdef BREAK_UPGRADE_BARS_NOBODY
#define BARRED false
#else
#define BARRED UPGRADING
#endif
inline no_upgrader() { upgrader = 0; up_seen = 0 }
#else
#define UPGRADING false
#define BARRED false
inline no_upgrader() { skip }
#endif

/* unlock.lua: longest. The proxy that has waited longest. */
inline find_longest() { longest = NOBODY; if :: waiting1 > 0 -> longest = waiting1 - 1 :: else fi }

/* Whatever the record says of a proxy that is not in its list is nothing. */
inline drop_stale(p) { if :: waiting1 != p + 1 && waiting2 != p + 1 -> how[p] = 0; seen[p] = 0 :: else fi }

/* read.lua */
inline read_lua() { held = token > 0 && state != RELEASED && key && now < expires; over = expires }

inline record(t, e, s, c, r) {
  token = t; expires = e; state = s; connection = c; request = r;
#ifndef ENDLESS
  forgotten = (e > now -> e : now) + RETENTION
#endif
}

/* What redis.call('DEL', KEYS[2]) and a SET of it do to the holders. */
inline no_holders() {
  k_ = 0;
  do :: k_ < LOCKERS -> h_until[k_] = 0; h_token[k_] = 0; h_request[k_] = 0; k_++ :: else -> break od
}

/* shared.lua: remove_holder */
inline remove_holder(i) { h_until[i] = 0; h_token[i] = 0; h_request[i] = 0 }

/* shared.lua: count_holders */
inline count_holders() {
  holders = 0; k_ = 0;
  do
  :: k_ < LOCKERS ->
     if
     :: h_until[k_] > now -> holders++
#ifdef BREAK_COUNTS_WHAT_IS_OVER_TWICE
     :: h_until[k_] > 0 && h_until[k_] <= now && holders > 0 -> holders--
#endif
     :: else
     fi;
     k_++
  :: else -> break
  od
}

/* shared.lua: write_shared. The lock lasts as long as the last of its holders. */
inline write_shared(t) {
  at = 0; k_ = 0;
  do
  :: k_ < LOCKERS ->
#ifdef BREAK_LASTS_AS_THE_NEWEST
     if :: h_until[k_] > 0 && h_token[k_] == t -> at = h_until[k_] :: else fi;
#else
     if :: h_until[k_] > at -> at = h_until[k_] :: else fi;
#endif
     k_++
  :: else -> break
  od;
  record(t, at, SHARED, 0, 0); key = 1
}

#define FITS(i) (holders + given_ < WANTS(i))

/* shared.lua: share, with so many holders, where one waits behind the list, + 1, or none does. What it answers is r_given, r_token and again. */
inline share(list, behind_) {
  list_ = list; given_ = 0; again = 0; next_ = behind_; wants_ = WRITER; next_token(); r_token = 0;
  do
  :: list_ == 0 -> break
  :: list_ > 0 ->
     s_ = FIRST_OF(list_); list_ = REST_OF(list_);
     if
     :: holders > 0 && HAS_IT(s_) -> again = 1; next_ = s_ + 1; wants_ = WANTS(s_); break
     :: !(holders > 0 && HAS_IT(s_)) && !FITS(s_) -> next_ = s_ + 1; wants_ = WANTS(s_); break
     :: else ->
        if :: given_ == 0 -> r_token = given :: else -> given = TOKEN_AFTER(given); WITNESSED(SEEN_TOGETHER) fi;
        if :: holders > 0 -> WITNESSED(SEEN_JOINS) :: else fi;
        h_until[s_] = now + TIMEOUT_OF(s_); h_token[s_] = given; h_request[s_] = reqs[s_];
        acquired_by_lock(s_, h_until[s_], given);
        given_++
     fi
  od;
  r_given = given_;
  if
  :: given_ > 0 ->
     k_ = 0;
     do
     :: k_ < LOCKERS -> if :: h_until[k_] > 0 && h_until[k_] <= now -> remove_holder(k_); WITNESSED(SEEN_PRUNED) :: else fi; k_++
     :: else -> break
     od
  :: else
  fi
}

/* shared.lua: share, at its end. The proxy p, which is not in the list now, stays listed behind others. */
inline stays_listed(p) { if :: next_ > 0 -> add_rival(p); how[p] = wants_ :: else fi }

/* lock.lua: in_turn, for the proxy p. A waiter with a limit bars what has come later, as a writer does. */
#ifdef BREAK_OVERTAKES_WRITERS
#define IN_TURN(p, mode) true
#else
#define IN_TURN(p, mode) (!BARRED && (mode == TRY -> waiting1 == 0 || (waiting1 == p + 1 && waiting2 == 0) : \
  waiting1 == 0 || waiting1 == p + 1 || (NO_LIMIT(waiting1 - 1) && (waiting2 == 0 || waiting2 == p + 1 || NO_LIMIT(waiting2 - 1)))))
#endif

/* lock.lua, for the request of locker i at proxy p, and further ones of waiters behind it, and who waits behind these. */
inline lock_lua(i, others, after, p, mode) {
  r_token = 0; r_given = 0; r_until = now; r_shared = 0; answered = 0;
  read_lua(); rivals(0);
  if
  :: held && state == HELD && connection == i && request == reqs[i] ->
     at = now + TIMEOUT_OF(i);
     if :: at < expires -> at = expires :: else fi;
     record(token, at, HELD, i, reqs[i]);
     r_token = token; r_given = 1; renewed(i, expires); answered = 1
  :: SHARES(i) && held && state == SHARED && HAS_IT(i) ->
     at = now + TIMEOUT_OF(i);
     if :: at > h_until[i] -> h_until[i] = at :: else fi;
     r_token = h_token[i]; r_given = 1; renewed(i, h_until[i]); answered = 1;
     write_shared(token)
  :: else
  fi;
  if
#ifdef BREAK_READER_NEXT_TO_WRITER
  :: !answered && SHARES(i) && held && (state == SHARED || state == HELD) && IN_TURN(p, mode) ->
#else
  :: !answered && SHARES(i) && held && state == SHARED && IN_TURN(p, mode) ->
#endif
     count_holders(); share(AHEAD(i, others), after);
     if
     :: r_given > 0 -> if :: mode == FIRST -> but_ = p + 1; rivals(but_); stays_listed(p) :: else fi; write_shared(given); answered = 1
     :: else
     fi
  :: else
  fi;
  find_behind(p, mode, held);
  behind = behind && !(SHARES(i) && how[rival_ - 1] != WRITER);
  if
  :: !answered && behind ->
     list_again(p); how[p] = WANTS(i);
     no_holders(); at = expires; record(token, at, RELEASED, 0, 0);
     r_until = over + HEAD_START
  :: !answered && held && !(state == RESERVED && connection == p) ->
     asked_ = WANTS(i); listed = waiting1 == p + 1 || waiting2 == p + 1;
     if
     :: mode == FIRST && listed && now - seen[p] < REFRESH && how[p] == asked_
     :: mode == FIRST && !(listed && now - seen[p] < REFRESH && how[p] == asked_) ->
        if :: listed -> seen[p] = now :: else -> add_rival(p) fi;
        how[p] = asked_;
        record(token, expires, state, connection, request)
     :: else
     fi;
     r_until = expires; r_shared = state == SHARED;
     if
     :: SHARES(i) && r_shared -> /* when the first of its holders ends */
        k_ = 0;
        do
        :: k_ < LOCKERS -> if :: h_until[k_] > now && h_until[k_] < r_until -> r_until = h_until[k_] :: else fi; k_++
        :: else -> break
        od
     :: else
     fi
  :: !answered && !behind && !(held && !(state == RESERVED && connection == p)) ->
     taken_from_reservation(p);
     if :: mode == FIRST -> but_ = p + 1; rivals(but_) :: else fi;
     no_holders();
     if
     :: SHARES(i) -> holders = 0; share(AHEAD(i, others), after); stays_listed(p); write_shared(given)
     :: else ->
        next_token(); at = now + TIMEOUT_OF(i);
        record(given, at, HELD, i, reqs[i]); key = 1;
        r_token = given; r_given = 1;
        acquired_by_lock(i, at, given)
     fi
  :: else
  fi;
  kept(); drop_stale(0); drop_stale(PROXIES - 1)
}

/* unlock.lua, for what token tok of locker i holds, at proxy p, whose wish is kind for the waiters of list, and who waits behind these. */
inline unlock_lua(tok, i, p, kind, list, after) {
  r_token = 0; r_given = 0; r_self = 0; answered = 0;
  read_lua(); rivals(0);
  r_freed = held && state == HELD && connection == i && token == tok;
  listed = held && state == SHARED && h_until[i] > now && h_token[i] == tok;
  if
  :: listed -> /* one of several may leave others */
     lease[i] = 0; remove_holder(i); count_holders(); find_longest();
#ifdef BREAK_FIRST_FREES_ALL
     holders = 0;
#endif
     if
     :: holders > 0 ->
        WITNESSED(SEEN_LEAVES_OTHERS);
        r_self = kind == SELF || kind == GAP; answered = 1;
        if
        :: list > 0 && !BARRED && SHARES(FIRST_OF(list)) && !(kind == FAIR && longest != NOBODY && longest != p) &&
           !(longest != NOBODY && longest != p && how[longest] == WRITER) ->
           share(list, after); r_self = again;
           if :: r_given > 0 -> but_ = p + 1; rivals(but_); stays_listed(p); write_shared(given); r_self = 0 :: else fi
        :: else
        fi;
        if
        :: r_given == 0 ->
           write_shared(token);
#ifndef BREAK_TELLS_NOBODY
           if :: !BARRED && longest != NOBODY && longest != p && how[longest] != WRITER && !dead[longest] -> publish(longest) :: else fi
#endif
        :: else
        fi
     :: else -> r_freed = 1
     fi
  :: else -> if :: held && !r_freed -> WITNESSED(SEEN_PAUSED) :: else fi
  fi;
  if :: r_freed && !answered -> lease[i] = 0; hand_on(p, kind, list, after) :: else fi;
  if :: answered -> r_freed = 0 :: else fi; /* it is not free */
  kept(); drop_stale(0); drop_stale(PROXIES - 1)
}

/* The rest of unlock.lua: who has the lock next. */
inline hand_on(p, kind, list, after) {
  others_first = waiting1 != 0 && waiting1 != p + 1; /* another proxy has waited longer */
  but_ = p + 1; rivals(but_);
  reserved_for = 0; lasting_ = RESERVATION;
  if
  :: waiting1 > 0 && (kind == NONE || kind == SELF || (kind == FAIR && others_first)) -> no_upgrader(); take_next()
  :: else
  fi;
  no_holders();
  if
  :: reserved_for == 0 && (kind == NEXT || kind == FAIR) && SHARES(FIRST_OF(list)) ->
     holders = 0; share(list, after); stays_listed(p); write_shared(given)
  :: reserved_for == 0 && (kind == NEXT || kind == FAIR) && !SHARES(FIRST_OF(list)) ->
     WITNESSED(SEEN_HAND_OVER);
     s_ = FIRST_OF(list); at = now + TIMEOUT_OF(s_);
     next_token();
     record(given, at, HELD, s_, reqs[s_]); key = 1;
     r_token = given; r_given = 1;
     acquired_by_lock(s_, at, given)
  :: else ->
     if :: reserved_for == 0 && kind == SELF -> reserved_for = p + 1 :: else fi;
     if :: kind != NONE && reserved_for != p + 1 -> add_rival(p); how[p] = WRITER :: else fi;
     if
     :: reserved_for > 0 ->
        at = now + lasting_; entry = reserved_for - 1;
        record(token, at, RESERVED, entry, 0); key = 1
     :: else ->
        record(token, 0, RELEASED, 0, 0); key = 0
     fi;
     r_self = reserved_for == p + 1
  fi
}

#ifdef UPGRADES
#define SCRIPT_NOT_YOURS 0
#define SCRIPT_ALONE     1
#define SCRIPT_SHARED    2
#define SCRIPT_BOTH      3

/* relock.lua: "exclude", for what token tok of locker i holds. waits: it asks again until nobody else shares the lock. */
inline exclude_lua(tok, i, waits) {
  r_token = 0; r_up = SCRIPT_NOT_YOURS;
  read_lua(); rivals(0);
  if
  :: held && state == SHARED && h_until[i] > now && h_token[i] == tok ->
     count_holders();
#ifdef BREAK_UPGRADE_COUNTS_NOBODY
     holders = 1;
#endif
     if
#ifndef BREAK_BOTH_WAIT
     :: holders > 1 && waits && UPGRADING && upgrader != i + 1 -> WITNESSED(SEEN_BOTH_UPGRADE); r_up = SCRIPT_BOTH
     :: holders > 1 && waits && !(UPGRADING && upgrader != i + 1) -> upgrader = i + 1; up_seen = now; r_up = SCRIPT_SHARED
#else
     :: holders > 1 && waits -> upgrader = i + 1; up_seen = now; r_up = SCRIPT_SHARED
#endif
     :: holders > 1 && !waits -> if :: upgrader == i + 1 -> WITNESSED(SEEN_UPGRADE_OVER); no_upgrader() :: else fi; r_up = SCRIPT_SHARED
     :: else ->
        if :: upgrader == i + 1 -> WITNESSED(SEEN_UPGRADED); no_upgrader() :: else fi;
        no_holders(); next_token(); at = now + TIMEOUT_OF(i);
#ifdef BREAK_UPGRADE_KEEPS_TOKEN
        given = tok;
#endif
        record(given, at, HELD, i, reqs[i]); key = 1;
        r_token = given; r_up = SCRIPT_ALONE;
        alone[i] = 1; given_lock(i, at, given)
     fi
  :: else
  fi;
  kept(); drop_stale(0); drop_stale(PROXIES - 1)
}
#endif

/* unlock.lua for proxy p, which gives back what is reserved for it, or says that nobody waits there any more. */
inline give_back_lua(p) {
  r_token = 0; r_given = 0; r_self = 0;
  read_lua(); rivals(0);
  if
  :: held && state == RESERVED && connection == p -> WITNESSED(SEEN_GIVEN_BACK); hand_on(p, NONE, 0, 0)
  :: !(held && state == RESERVED && connection == p) && token > 0 ->
     find_lapsed();
     if :: len(line[p]) == 0 -> but_ = p + 1; rivals(but_) :: else fi;
     if
     :: held && state == SHARED -> WITNESSED(SEEN_WAITS_NO_MORE); write_shared(token)
     :: held && state != SHARED -> record(token, expires, state, connection, request)
     :: else -> no_holders(); at = (lapsed && waiting1 > 0 -> expires : 0); record(token, at, RELEASED, 0, 0)
     fi;
     find_longest();
     if :: (!held || state == SHARED) && longest != NOBODY && longest != p && !dead[longest] -> publish(longest) :: else fi
  :: else
  fi;
  kept(); drop_stale(0); drop_stale(PROXIES - 1)
}

inline remove_expired() {
  if :: key && now > expires -> key = 0 :: else fi;
  if
  :: token > 0 && now > forgotten ->
     token = 0; expires = 0; forgotten = 0; state = RELEASED; connection = 0; request = 0; waiting1 = 0; waiting2 = 0;
     no_upgrader(); no_holders()
  :: else
  fi
}
