/* The upstream: the clock, one lock's key and its lock record, and what each of ../scripts/*.lua does to them, in one step. The names
are the scripts' own. The short way of LOCK (fast_lock.lua) does what the long one does there, so it isn't here. */

/* The key: the tick at which it says that the lock expires, 0 if there is no key; and when Redis removes it, 0 for never. */
byte value, ttl;

/* The rest of the lock record. */
byte written, settles;
bit left_alone; /* for the monitor: the lock was released, and the record left as it was */

/* What a script answers. */
hidden byte r_over;              /* lock: it settles */
hidden byte r_stays;             /* unlock: the record can stay as it is */
hidden short r_repair;           /* settle: 1, 0 or -1 */

hidden byte plain, other, over, for_me, taken_over;
hidden byte until_, text_;

#ifdef MS_BESIDE_SECONDS
#define TEXT(t) ((t) + 128) /* LOCK writes ms, the foreign clients seconds: to them it looks alive for ever */
#else
#define TEXT(t) (t)
#endif
#define TIME(v) ((v) & 127)
#define RANDOM 64 /* what another library writes, which is no time: RANDOM + the client */
#define IS_RANDOM(v) (((v) & RANDOM) > 0)

#define SETTLING (token > 0 && now < settles -> settles : 0) /* write.lua: grace_end() */

#ifdef BREAK_PROXY_CLOCK
hidden byte ahead; /* by how much the clock of the proxy that asks is ahead */
#define CLOCK (now + ahead)
#define ASKED_BY(p) ahead = 2 * (p)
#else
#define CLOCK now
#define ASKED_BY(p) skip
#endif

/* read.lua */
inline read_lua() {
  over = (token > 0 && state == HELD -> expires + GUARD : expires);
  held = token > 0 && state != RELEASED && CLOCK < over && (value == written || now < settles && !IS_RANDOM(value));
#ifndef BREAK_TTL_IGNORED
  held = held && (now < settles || ttl > 0);
#endif
#ifdef BREAK_IGNORES_COMPANION
  held = held && now < TIME(value);
#endif
  plain = value > 0 && !held && !IS_RANDOM(value) && CLOCK < TIME(value) + (token > 0 && value == written -> 0 : GUARD);
  other = value > 0 && !held && !plain && ttl > 0 && !(token > 0 && value == written);
#ifdef BREAK_IGNORES_OTHER
  other = false
#endif
}

#ifdef SAME_OWNER
hidden byte again_; /* the record is written for one more connection of the owner */
#endif

/* SET of the key, and of the lock record. */
inline write_key(text, until) { value = text; ttl = until; writer = BY_LOCK; touched() }

inline record(t, e, w, s, st, c, r) {
  token = t; expires = e; written = w; settles = s; state = st; connection = c; request = r; left_alone = 0;
#ifdef SAME_OWNER
  if :: state == HELD && !again_ -> given_to = 1 << connection :: state == HELD && again_ :: else -> given_to = 0 fi;
#endif
  forgotten = (e + GUARD > now -> e + GUARD : now) + RETENTION
}

#ifdef SILENT /* late.pml */
#define REQUEST(i)  (asks_late -> late_req : reqs[i])
#define PROVES(tok) (token == tok || tok == BY_REQUEST && connection == late_of && request == late_req)
#else
#define REQUEST(i)  reqs[i]
#define PROVES(tok) (token == tok)
#endif

hidden byte request_; /* which of the asker's requests asks */

/* `own` */
#ifdef SAME_OWNER
#define ASKS_AGAIN(i) OF_ONE_OWNER(connection, i)
#else
#define ASKS_AGAIN(i) (connection == i && request == request_)
#endif

/* lock.lua, for the request of locker i at proxy p. Its "check", which only ever tells an OWNER, isn't here. */
inline lock_lua(i, p, how) {
  r_token = 0; r_over = false; r_until = now; request_ = REQUEST(i);
  ASKED_BY(p); read_lua(); ASKED_BY(0);
#ifdef BREAK_IGNORES_PLAIN
  plain = false;
#endif
#ifdef BREAK_RESERVATION
  for_me = held && state == RESERVED;
#else
  for_me = held && state == RESERVED && connection == p;
#ifndef BREAK_TRIES_TAKE_RESERVED
  rival_ = (waiting1 == p + 1 -> waiting2 : waiting1);
  for_me = for_me && !(how == TRY && rival_ > 0 && now - seen[rival_ - 1] < FRESH);
#endif
#endif
  if
  :: held && state == HELD && ASKS_AGAIN(i) -> /* `again` */
     if :: connection != i -> WITNESSED(SEEN_SAME_OWNER) :: else fi;
     overwritten_by_lock(i);
     at = now + TIMEOUT_OF(i); text_ = TEXT(at);
     if :: at <= expires -> at = expires; text_ = written :: else fi;
     write_key(text_, at + GUARD);
#if defined(SAME_OWNER) && !defined(BREAK_FORGETS_CONNECTIONS)
     given_to = given_to | (1 << i); again_ = 1;
#endif
     record(token, at, text_, settles, HELD, i, request_);
#ifdef SAME_OWNER
     again_ = 0;
#endif
     r_token = token;
#ifndef BREAK_AGAIN_IS_SILENT
     r_over = SETTLING > 0;
#endif
     if :: now < settles -> no_looks = 0 :: else fi; /* who tells the holder so must look after the lock */
     renewed(i, at)
  :: else ->
     find_behind(p, how, plain || other || held);
     if
     :: plain || other || (held && !for_me) || behind ->
        if :: other -> WITNESSED(SEEN_OTHER) :: else fi;
        r_until = (plain -> TIME(value) + GUARD : (other -> ttl + 1 : over));
        if
        :: behind ->
           refused_though_free(how);
           r_until = over + HEAD_START;
           if
           :: how == FIRST -> list_again(p); at = (lapsed -> expires : 0); until_ = SETTLING; text_ = (value == written -> written : 0); record(token, at, text_, until_, RELEASED, 0, 0)
           :: else
           fi
        :: how == FIRST && held && (waiting1 == p + 1 || waiting2 == p + 1) && now - seen[p] < REFRESH
        :: how == FIRST && held && !((waiting1 == p + 1 || waiting2 == p + 1) && now - seen[p] < REFRESH) ->
           list_again(p);
           record(token, expires, written, settles, state, connection, request)
        :: else
        fi
     :: else ->
        taken_over = value > 0 && !for_me;
#ifdef PROPOSED_SETTLES_AFTER_EXPIRY
        taken_over = taken_over || (token > 0 && state != RELEASED && now < over + SETTLE && !for_me);
#endif
#ifdef BREAK_NO_SETTLING
        taken_over = false;
#endif
        if :: taken_over && writer != BY_LOCK -> WITNESSED(SEEN_TAKEOVER) :: else fi;
        if :: !taken_over && SETTLING > 0 && state == RELEASED -> WITNESSED(SEEN_CARRIED) :: else fi;
        taken_from_reservation(p); taken_fresh();
        if :: left_alone -> WITNESSED(SEEN_STAYED) :: else fi;
        until_ = (taken_over -> now + SETTLE : SETTLING);
        r_over = until_ > 0;
        at = now + TIMEOUT_OF(i); text_ = TEXT(at);
        next_token();
        but_ = (how == FIRST -> p + 1 : 0); rivals(but_);
        write_key(text_, at + GUARD);
        record(given, at, text_, until_, HELD, i, request_);
        r_token = given;
        if :: how == TRY -> overtakes(p) :: else fi;
        acquired_by_lock(i, at, given)
     fi
  fi
}

#ifdef BREAK_NO_CARRY
#define CARRIED 0
#else
#define CARRIED SETTLING
#endif

#ifdef BREAK_TTL_IGNORED
#define TTL_PROVES true
#else
#define TTL_PROVES (ttl > 0)
#endif

/* fast_unlock.lua: what the short way of UNLOCK takes for held. */
#define FAST_UNLOCK(tok, kind) \
  (GUARD == 0 && token == tok && state == HELD && value == written && value > 0 && settles == 0 && \
  (kind == NEXT || waiting1 == 0 && (kind == NONE || kind == FAIR)) && TTL_PROVES && now < expires && (ttl == 0 || now < ttl))

/* unlock.lua: whether a release leaves the record as it is, if its own proxy has no waiters either. */
#ifdef BREAK_STAYS_WHILE_SETTLING
#define SETTLED true
#else
#define SETTLED (settles == 0)
#endif
#define STAYS (held && state == HELD && SETTLED && waiting1 == 0 && TIMEOUT_OF(connection) <= STAYS_UP_TO)

/* unlock.lua: frees what token tok holds, for locker i (NOBODY: an orphan's), at proxy p, whose wish is kind for nxt. */
inline unlock_lua(tok, i, p, kind, nxt) {
  r_token = 0; r_self = false;
  read_lua();
  r_stays = STAYS;
#if defined(BREAK_NO_COMPARE)
  r_freed = (held && state == HELD) || plain;
#elif defined(BREAK_UNLOCK_IGNORES_VALUE)
  r_freed = state == HELD && token == tok && now < expires;
#else
  r_freed = held && state == HELD && PROVES(tok) || FAST_UNLOCK(tok, kind);
#endif
  if
  :: r_freed -> released_by_lock(i); hand_on(p, kind, nxt)
  :: else -> if :: held && state == HELD && token != tok -> WITNESSED(SEEN_PAUSED) :: else fi
  fi
}

#ifdef SAME_OWNER
/* unlock.lua ("given") for locker i at proxy p, whose client has disconnected: the lock stays while other connections of its owner have it. */
inline disconnected_lua(tok, i, p) {
  r_token = 0; r_self = false; r_stays = 0; r_freed = false;
  read_lua();
  if
  :: held && state == HELD && token == tok && (given_to & (1 << i)) ->
     given_to = given_to & (255 - (1 << i));
     if
#ifndef BREAK_DISCONNECTED_FREES
     :: given_to > 0 -> WITNESSED(SEEN_ORPHAN_KEPT)
#endif
     :: else -> r_freed = true; overwritten_by_lock(NOBODY); hand_on(p, NONE, 0)
     fi
  :: else
  fi
}
#endif

/* unlock.lua for proxy p, which gives back what is reserved for it, or says that nobody waits there any more. */
inline give_back_lua(p) {
  r_token = 0; r_self = false;
  read_lua();
  r_freed = held && state == RESERVED && connection == p; r_stays = 0;
  if
  :: r_freed && len(line[p]) == 0 -> WITNESSED(SEEN_GIVEN_BACK); hand_on(p, NONE, 0)
  :: r_freed && len(line[p]) > 0 -> hand_on(p, SELF, 0) /* somebody waits again */
  :: !r_freed && token > 0 && (waiting1 == p + 1 || waiting2 == p + 1) && len(line[p]) == 0 ->
     if :: held -> WITNESSED(SEEN_WAITS_NO_MORE) :: else fi;
     find_lapsed(); but_ = p + 1; rivals(but_);
     if
     :: held -> record(token, expires, written, settles, state, connection, request)
     :: else -> at = (lapsed && waiting1 > 0 -> expires : 0); until_ = SETTLING; text_ = (value == written -> written : 0); record(token, at, text_, until_, RELEASED, 0, 0)
     fi;
     tell_next()
  :: else -> but_ = p + 1; tell_next()
  fi
}

inline tell_next() {
  if :: !held && value == 0 && waiting1 > 0 && waiting1 != but_ && !dead[waiting1 - 1] -> entry = waiting1 - 1; publish(entry) :: else fi
}

/* The rest of unlock.lua: who has the lock next. */
inline hand_on(p, kind, nxt) {
  rivals(0);
  others_first = waiting1 != 0 && waiting1 != p + 1; /* another proxy has waited longer */
  but_ = p + 1; rivals(but_);
#ifdef BREAK_NO_TURNS
  others_first = false;
#endif
  until_ = CARRIED;
  reserved_for = 0; lasting_ = RESERVATION;
  if
  :: waiting1 > 0 && (kind == NONE || kind == SELF || (kind == FAIR && others_first)) ->
     take_next()
  :: else
  fi;
  if
  :: reserved_for == 0 && (kind == NEXT || kind == FAIR) ->
     WITNESSED(SEEN_HAND_OVER);
     at = now + TIMEOUT_OF(nxt); text_ = TEXT(at);
     next_token();
#ifdef BREAK_HAND_OVER_TOKEN
     given = token;
#endif
     write_key(text_, at + GUARD);
     record(given, at, text_, until_, HELD, nxt, reqs[nxt]);
     r_token = given;
     acquired_by_lock(nxt, at, given)
  :: else ->
     if :: reserved_for == 0 && kind == SELF -> reserved_for = p + 1 :: else fi;
     if :: kind != NONE && reserved_for != p + 1 -> add_rival(p) :: else fi;
     if
     :: reserved_for > 0 ->
        at = now + lasting_; text_ = TEXT(at); entry = reserved_for - 1;
        write_key(text_, at);
        record(token, at, text_, until_, RESERVED, entry, 0)
     :: else ->
        if :: value > 0 -> touched() :: else fi;
        value = 0; ttl = 0; writer = BY_LOCK;
        if
        :: r_stays && kind == NONE -> left_alone = 1
        :: !(r_stays && kind == NONE) && token > 0 -> record(token, 0, 0, until_, RELEASED, 0, 0)
        :: else
        fi
     fi;
     r_self = reserved_for == p + 1
  fi
}

/* relock.lua */
inline relock_lua(tok, i, lasting) {
  read_lua();
#ifdef BREAK_RELOCK_NO_COMPARE
  r_freed = held && state == HELD;
#else
  r_freed = held && state == HELD && token == tok;
#endif
  if
  :: r_freed ->
     overwritten_by_lock(i);
     at = now + lasting; text_ = TEXT(at);
     write_key(text_, at + GUARD);
     record(token, at, text_, settles, HELD, connection, request);
     renewed(i, at)
  :: else
  fi
}

#ifdef PLACE
/* relock.lua: "take", for locker i, whose place has token tok. */
inline take_lua(tok, i) {
  read_lua();
#ifdef BREAK_PLACE_TAKEN_BLINDLY
  r_freed = token > 0;
#else
  r_freed = held && state == HELD && token == tok;
#endif
  if
  :: r_freed ->
     overwritten_by_lock(i);
     at = now + TIMEOUT; text_ = TEXT(at);
     write_key(text_, at + GUARD);
     until_ = SETTLING;
     record(token, at, text_, until_, HELD, i, reqs[i]);
     renewed(i, at)
  :: else
  fi
}
#endif

/* repair.lua */
inline repair_lua() {
  read_lua();
#ifdef BREAK_SETTLES_BLINDLY
  held = true;
#endif
  if
  :: token == 0 || now >= settles -> r_repair = -1
  :: token > 0 && now < settles && (!held || state != HELD || value == written) -> r_repair = 0
  :: else -> rewrite_written(); r_repair = 1
  fi
}

/* What repair.lua and check.lua do to a timestamp that a foreign client has replaced. */
inline rewrite_written() {
  WITNESSED(SEEN_PUT_RIGHT);
  overwritten_by_lock(connection);
  write_key(written, expires + GUARD);
  put_right()
}

/* check.lua, for token tok. */
inline check_lua(tok) {
  read_lua();
  r_freed = held && state == HELD && token == tok;
#ifndef BREAK_FENCE_LEAVES_TIMESTAMP
  if :: r_freed && value != written -> rewrite_written() :: else fi
#endif
}

/* What Redis does by itself: a key is gone when now > its time, which is after it has expired for LOCK. */
inline remove_expired() {
  if :: ttl > 0 && now > ttl -> value = 0; ttl = 0; writer = BY_LOCK; touched() :: else fi;
  if
  :: token > 0 && now > forgotten ->
     left_alone = 0;
     token = 0; expires = 0; written = 0; settles = 0; forgotten = 0; state = RELEASED; connection = 0; request = 0;
     waiting1 = 0; waiting2 = 0
  :: else
  fi
}
