/* The upstream: the clock, one lock's key and its companion, and what each of scripts/*.lua does to them, in one step. The names are
the scripts' own. The short ways (fast_lock.lua, fast_unlock.lua) do what the long ones do, so they aren't here. */

byte now = START;

/* The lock's key: the tick at which it says that it expires, 0 if there is no such key; when Redis removes it, 0 for never. */
byte value, ttl;

/* The companion, read.lua: token 0 is none. */
byte token, expires, written, settles, forgotten; /* forgotten: when Redis removes it */
byte state;                                       /* RELEASED, HELD or RESERVED */
byte connection;                                  /* the locker if held, the proxy if reserved */
bit request;                                      /* which of the locker's requests: they alternate */
byte waiting1, waiting2;                          /* proxies that have waiters, + 1, the longest waiting first; 0 is none */
byte seen[PROXIES];

/* What a script answers. */
hidden byte r_token;             /* lock and unlock: the token given, or 0 */
hidden byte r_over;              /* lock: it settles */
hidden byte r_again;             /* lock: the caller had it already */
hidden byte r_until;             /* lock: when what refused it expires */
hidden byte r_freed, r_self;     /* unlock */
hidden short r_settle;           /* settle: 1, 0 or -1 */

hidden byte held, plain, for_me, settling_now, others_first;
hidden byte at, given, entry, reserved_for, wanted, but_, until_, text_;

#ifdef MS_BESIDE_SECONDS
#define TEXT(t) ((t) + 128)      /* what LOCK writes looks alive for ever to those who count in seconds */
#else
#define TEXT(t) (t)
#endif
#define TIME(v) ((v) & 127)

#define SETTLING (token > 0 && now < settles -> settles : 0)
#ifdef BREAK_NO_CARRY
#define CARRIED 0
#else
#define CARRIED SETTLING
#endif


inline read_lua() {
  held = token > 0 && state != RELEASED && now < expires && (value == written || now < settles);
  plain = value > 0 && !held && now < TIME(value)
}

/* SET key text PX, and SET companion PX. */
inline write_key(text, until) { value = text; ttl = until; writer = BY_LOCK; touched() }

inline record(t, e, w, s, st, c, r) {
  token = t; expires = e; written = w; settles = s; state = st; connection = c; request = r;
  forgotten = (e > now -> e : now) + RETENTION; touched()
}

/* write.lua: the waiting proxies seen lately, but for one (+ 1; 0 is none). */
inline rivals(but) {
  if :: waiting2 > 0 && (waiting2 == but || now - seen[waiting2 - 1] >= FRESH) -> waiting2 = 0 :: else fi;
  if :: waiting1 > 0 && (waiting1 == but || now - seen[waiting1 - 1] >= FRESH) -> waiting1 = waiting2; waiting2 = 0 :: else fi
}

inline append_waiting(p) {
  if :: waiting1 == 0 -> waiting1 = p + 1 :: else -> waiting2 = p + 1 fi;
  seen[p] = now
}

inline next_token() {
#if defined(ENDLESS)
  given = (token % 15) + 1 /* no clock runs: enough to tell them apart */
#elif defined(BREAK_TOKEN_RESET)
  given = token + 1 /* a counter, that begins anew when the companion is forgotten */
#elif defined(BREAK_TOKEN_REUSED)
  given = (now * PER_TICK > token -> now * PER_TICK : token) /* the clock alone: two within its resolution are the same */
#else
  given = (now * PER_TICK > token + 1 -> now * PER_TICK : token + 1)
#endif
}

/* lock.lua, for request `reqs[i]` of locker i at proxy p. how is TRY or FIRST; "check" gets nothing, and only tells an OWNER. */
inline lock_lua(i, p, how) {
  r_token = 0; r_over = false; r_again = false; r_until = now;
  read_lua();
  for_me = held && state == RESERVED && connection == p && how == FIRST;
#ifdef BREAK_RESERVATION
  for_me = held && state == RESERVED;
#endif
#ifdef BREAK_IGNORES_PLAIN
  plain = false;
#endif
  if
  :: held && state == HELD && connection == i && (request == reqs[i] || OWNER_RETRIES) ->
     at = now + timeout_of(i);
     if :: at <= expires -> at = expires :: else fi;
     text_ = TEXT(at);
     write_key(text_, at);
     record(token, at, text_, settles, HELD, i, reqs[i]);
     r_token = token; r_again = true;
     renewed(i, at)
  :: else ->
     if
     :: plain || (held && !for_me) ->
        r_until = (plain -> TIME(value) : expires);
        if
        :: how == FIRST && held ->
           if
           :: (waiting1 == p + 1 || waiting2 == p + 1) && now - seen[p] < FRESH ->
              if :: now - seen[p] >= REFRESH -> rivals(0); seen[p] = now; record(token, expires, written, settles, state, connection, request)
              :: else
              fi
           :: else -> but_ = p + 1; rivals(but_); append_waiting(p); record(token, expires, written, settles, state, connection, request)
           fi
        :: else
        fi
     :: else ->
        r_over = value > 0 && !for_me;
#ifdef BREAK_NO_SETTLING
        r_over = false;
#endif
        settling_now = r_over;
        at = now + timeout_of(i);
        next_token();
        but_ = (how == FIRST -> p + 1 : 0); rivals(but_);
        taken_from_reservation(p);
        r_over = r_over || SETTLING > 0;
        until_ = (settling_now -> now + SETTLE : SETTLING);
        text_ = TEXT(at);
        write_key(text_, at);
        record(given, at, text_, until_, HELD, i, reqs[i]);
        r_token = given;
        acquired_by_lock(i, at, given)
     fi
  fi
}

/* unlock.lua: frees what `tok` holds, for locker i (NOBODY for an orphan's), at proxy p. kind is what the proxy wishes for its own
waiters, and nxt the first of them if it names one. */
inline unlock_lua(tok, i, p, kind, nxt) {
  r_freed = false; r_token = 0; r_self = false;
  read_lua();
#if defined(BREAK_NO_COMPARE)
  r_freed = (held && state == HELD) || plain;
#elif defined(BREAK_UNLOCK_IGNORES_VALUE)
  r_freed = token == tok && state == HELD && now < expires;
#else
  r_freed = held && state == HELD && token == tok;
#endif
  if
  :: r_freed ->
     released_by_lock(i);
     wanted = kind;
     rivals(0);
     others_first = waiting1 != 0 && waiting1 != p + 1; /* another proxy has waited longer */
     but_ = p + 1; rivals(but_);
     if
#ifdef BREAK_NO_TURNS
     :: wanted == NEXT || wanted == TURN ->
#else
     :: wanted == NEXT || (wanted == TURN && !others_first) ->
#endif
        at = now + timeout_of(nxt);
        next_token();
#ifdef BREAK_HANDOVER_TOKEN
        given = token;
#endif
        text_ = TEXT(at); until_ = SETTLING;
        write_key(text_, at);
        record(given, at, text_, until_, HELD, nxt, reqs[nxt]);
        r_token = given;
        acquired_by_lock(nxt, at, given)
     :: else ->
        reserved_for = 0;
        if
        :: wanted == SELF && waiting1 == 0 -> reserved_for = p + 1
        :: wanted == FREE || wanted == GAP
        :: else ->
           do /* PUBLISH: told is who hears of it */
           :: waiting1 > 0 && reserved_for == 0 ->
              reserved_for = waiting1; entry = waiting1 - 1; waiting1 = waiting2; waiting2 = 0;
              if
              :: !dead[entry] -> publish(entry)
              :: dead[entry] /* Redis need not know yet */
              :: dead[entry] -> reserved_for = 0
              fi
           :: else -> break
           od;
           if :: reserved_for == 0 && wanted != NONE -> reserved_for = p + 1 :: else fi
        fi;
        if :: wanted != NONE && reserved_for != p + 1 -> append_waiting(p) :: else fi;
        until_ = CARRIED;
        if
        :: reserved_for > 0 ->
           at = now + RESERVATION;
           text_ = TEXT(at); entry = reserved_for - 1;
           write_key(text_, at);
           record(token, at, text_, until_, RESERVED, entry, 0)
        :: else ->
           value = 0; ttl = 0; writer = BY_LOCK;
           if :: token > 0 -> record(token, 0, 0, until_, RELEASED, 0, 0) :: else -> touched() fi
        fi;
        r_self = reserved_for == p + 1
     fi
  :: else
  fi
}

/* relock.lua */
inline relock_lua(tok, i, lasting) {
  r_freed = false;
  read_lua();
  if
  :: held && state == HELD && token == tok ->
     overwritten_by_lock(i);
     at = now + lasting;
     text_ = TEXT(at);
     write_key(text_, at);
     record(token, at, text_, settles, HELD, connection, request);
     r_freed = true;
     renewed(i, at)
  :: else
  fi
}

/* settle.lua */
inline settle_lua() {
  read_lua();
  if
  :: token == 0 || now >= settles -> r_settle = -1
#ifdef BREAK_SETTLE_BLINDLY
  :: else -> r_settle = 1; write_key(written, expires); put_right()
#else
  :: token > 0 && now < settles && (!held || state != HELD || value == written) -> r_settle = 0
  :: else ->
     overwritten_by_lock(connection);
     write_key(written, expires);
     put_right();
     r_settle = 1
#endif
  fi
}

/* What Redis does by itself as time passes: expired is a key only when now > ttl. */
inline remove_expired() {
  if :: ttl > 0 && now > ttl -> value = 0; ttl = 0; writer = BY_LOCK; touched() :: else fi;
  if :: token > 0 && now > forgotten ->
        token = 0; expires = 0; written = 0; settles = 0; forgotten = 0; state = RELEASED; connection = 0; request = 0;
        waiting1 = 0; waiting2 = 0; touched()
  :: else
  fi
}
