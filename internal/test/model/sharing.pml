/* monitor.pml for a lock that can be shared. Nothing here decides what any program does. */

byte lease[LOCKERS]; /* until when the locker may think that it has the lock; 0: it doesn't */
#ifdef CHECK_TOKENS
byte highest;        /* the highest token given */
#endif

#define LIVE(a) (lease[a] > now)

hidden byte a_, next_to;

#ifdef UPGRADES
bit alone[LOCKERS]; /* a reader that has become the only holder */
#define EXCLUDES(i) (WANTS(i) == WRITER || alone[i])
#else
#define EXCLUDES(i) (WANTS(i) == WRITER)
#endif

/* Locker i is given the lock: which others hold it then. */
inline given_lock(i, until, tok) {
  a_ = 0; next_to = 0;
  do
  :: a_ < LOCKERS ->
     if
     :: a_ != i && LIVE(a_) ->
        next_to++;
        if
        :: EXCLUDES(a_) || EXCLUDES(i) ->
           printf("%d  locker %d has the lock now, which is locker %d's until %d\n", now, i, a_, lease[a_]);
           assert(exclusion)
        :: else
        fi
     :: else
     fi;
     a_++
  :: else -> break
  od;
  if :: !EXCLUDES(i) && next_to >= WANTS(i) -> printf("%d  locker %d is one too many\n", now, i); assert(limit) :: else fi;
  if :: wstate[i] != LEFT -> lease[i] = until :: else fi;
#ifdef CHECK_TOKENS
  if :: tok <= highest -> assert(tokens_rise) :: else fi;
  highest = tok;
#endif
  used()
}

inline acquired_by_lock(i, until, tok) { given_lock(i, until, tok); count_bypass(i) }

inline renewed(i, until) { if :: LIVE(i) -> lease[i] = until :: else fi }

/* After each script: nobody's lock has been taken away or shortened. */
inline kept() {
  a_ = 0;
  do
  :: a_ < LOCKERS ->
     if
     :: LIVE(a_) && !(now < expires && key &&
          (state == HELD && connection == a_ && expires >= lease[a_] || state == SHARED && h_until[a_] >= lease[a_])) ->
        printf("%d  the lock that is locker %d's until %d is recorded no more\n", now, a_, lease[a_]);
        assert(own_release)
     :: else
     fi;
     a_++
  :: else -> break
  od
}

inline taken_from_reservation(p) {
  if
  :: held && state == RESERVED ->
     WITNESSED(SEEN_RESERVATION);
     if :: connection != p -> assert(reservation) :: else fi
  :: else
  fi
}

inline time_passed() {
  a_ = 0;
  do :: a_ < LOCKERS -> if :: lease[a_] > 0 && !LIVE(a_) -> lease[a_] = 0 :: else fi; a_++ :: else -> break od
}

/* CHECK_PROMPT: for how many ticks a lock may be free while somebody waits, or shared while the first at a proxy would fit and
nobody waits who would not. Nor may a lock be kept for somebody who has left. */
#ifdef CHECK_PROMPT
byte unused;
hidden byte fits_;
inline used() { unused = 0 }
inline first_fits(p) {
  if
  :: len(line[p]) > 0 && !dead[p] -> line[p] ? <first_>; if :: !SHARES(first_) || holders >= WANTS(first_) -> fits_ = 0 :: else fi
  :: else
  fi
}
inline check_prompt() {
  read_lua();
  fits_ = !held;
  if
  :: held && state == SHARED ->
     count_holders(); fits_ = 1; first_fits(0);
#if PROXIES > 1
     first_fits(1)
#endif
  :: else
  fi;
  if :: fits_ && SOMEBODY_WAITS -> unused++ :: else -> unused = 0 fi;
  if :: unused > CHECK_PROMPT -> assert(prompt) :: else fi;
#ifndef PROXY_CRASHES
  a_ = 0;
  do
  :: a_ < LOCKERS ->
     if :: held && !LIVE(a_) && (state == HELD && connection == a_ || state == SHARED && h_until[a_] > now) -> assert(no_dead_holder) :: else fi;
     a_++
  :: else -> break
  od
#endif
}
#else
inline used() { skip }
inline check_prompt() { skip }
#endif
