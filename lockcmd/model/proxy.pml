/* The proxies: line.go, wait.go, lock.go (settleLater), unlock.go (release), wakes.go, fence.go. A step on a script and the handling
of its answer are two steps, since anything may come between. */

chan line[PROXIES] = [LOCKERS] of { byte }; /* line.go: who waits here, in order of arrival */
byte turn[PROXIES];       /* grants left before waiters of other proxies go first */
byte lasts[PROXIES];      /* line.lease */
bit message[PROXIES];     /* on its way: the lock is reserved for the first waiter here */
bit looking[PROXIES];     /* settles: it looks after a lock that was taken over */

byte wstate[LOCKERS];     /* of the locker as a waiter */
byte wtoken[LOCKERS];
bit wlook[LOCKERS];       /* the lock may be free: look at once */
byte look_by[LOCKERS];    /* when the first in line looks by itself */
bit reqs[LOCKERS];        /* which request is the locker's own now */
byte named[LOCKERS];      /* releases under way that have named it */
byte bypassed[LOCKERS];   /* grants to others while it waits */

#ifdef FENCES
#define WATCHED 1
#define CHANGED 2
byte watching[LOCKERS];   /* WATCH of both keys */
byte fenced;              /* the highest token that has written */
inline touched() {
  a_ = 0;
  do :: a_ < LOCKERS -> if :: watching[a_] -> watching[a_] = CHANGED :: else fi; a_++ :: else -> break od
}
#else
inline touched() { skip }
#endif

hidden byte first_, len_, d_;

inline publish(q) {
#ifdef MESSAGES_MAY_BE_LOST
  if :: message[q] = 1 :: skip fi
#else
  message[q] = 1
#endif
}

inline arm(w, d) {
#ifdef POLLS
  d_ = (d); look_by[w] = now + (d_ < LOOK -> d_ : LOOK)
#else
  skip
#endif
}

inline wake_first(p) { if :: len(line[p]) > 0 -> line[p] ? <first_>; arm(first_, lasts[p]) :: else fi }

inline yielded(p, d) { turn[p] = 0; lasts[p] = d; wake_first(p) }

/* lock.go: settleLater, at once; a proxy that is late with it is one that has crashed. */
inline look_after(p) { if :: r_over && !dead[p] -> looking[p] = 1; no_looks = 0 :: r_over && dead[p] -> no_looks = 1 :: else fi }

/* w is not in line any more: who becomes first thinks anew when to look. */
inline leave_line(w, p) {
  line[p] ? <first_>;
  line[p] ?? eval(w);
  if
  :: first_ == w && len(line[p]) > 0 ->
     line[p] ? <first_>; arm(first_, lasts[p]);
#ifdef LOOKS_ARE_PASSED_ON
     if :: wlook[w] -> wlook[first_] = 1 :: else fi
#endif
  :: else
  fi;
  wlook[w] = 0; look_by[w] = 0
}

inline grant(w, p, t) {
  wstate[w] = GRANTED; wtoken[w] = t; bypassed[w] = 0;
  if :: turn[p] == 0 -> turn[p] = len(line[p]) :: else fi;
  turn[p]--;
  lasts[p] = timeout_of(w);
#ifdef CHECK_FAIR
  if :: !(line[p] ? [eval(w)]) -> fair = false; assert(fair) :: else fi;
#endif
  leave_line(w, p)
}

#ifdef CHECK_FAIR
inline count_bypass(to) {
  a_ = 0;
  do
  :: a_ < LOCKERS ->
     if
     :: a_ != to && (wstate[a_] == WAITING || wstate[a_] == OFFERED) ->
        bypassed[a_]++;
        if :: bypassed[a_] > CHECK_FAIR -> fair = false; assert(fair) :: else fi
     :: else
     fi;
     a_++
  :: else -> break
  od
}
#else
inline count_bypass(to) { skip }
#endif

/* What a trail shows. */
inline say_lock(how) { printf("%d  locker %d at proxy %d LOCK (how %d): %d; key %d, expires %d, settles %d\n", now, me, home, how, r_token, value, expires, settles) }
inline say_unlock() { printf("%d  locker %d at proxy %d UNLOCK %d (wish %d): %d, next %d gets %d\n", now, me, home, mine, kind, r_freed, next, r_token) }

#define ME_FIRST (line[home] ? [eval(me)])
#define DUE      (wlook[me] || LOOKS_BY_ITSELF)

#ifdef POLLS
#define LOOKS_BY_ITSELF (now >= look_by[me])
#else
#define LOOKS_BY_ITSELF false
#endif

/* Where clients are not delayed, they choose to let time pass. */
#ifdef URGENT
#define OR_SLEEP(then) :: atomic { now < END -> until = now + 1 }; atomic { now >= until; until = 0; goto then }
#else
#define OR_SLEEP(then)
#endif

proctype Locker(byte me) {
  byte home = HOME(me), owner = me, rounds = 0, mine = 0, answer = 0, kind = NONE, next = NOBODY, until = 0;
  bit freed = 0, self = 0, relocked = 0;

begin:
  if
  :: atomic {
       named[me] == 0 && now < END && !dead[home] && rounds < ROUNDS;
#ifndef ENDLESS
       rounds++;
#endif
       reqs[me] = 1 - reqs[me]
     }
  OR_SLEEP(begin)
  fi;
#ifdef WAITS
  atomic { /* wait.go: wait */
    line[home] ! me; wstate[me] = WAITING;
    if :: ME_FIRST -> goto look :: else -> goto wait_turn fi
  }
look:
  atomic { lock_lua(me, home, FIRST); say_lock(FIRST); answer = r_token; look_after(home); until = r_until }
  atomic {
    !dead[home];
    if
    :: wstate[me] == GRANTED /* by a release, while this was under way */
    :: wstate[me] != GRANTED && answer == 0 -> until = until - now; arm(me, until)
    :: wstate[me] != GRANTED && answer > 0 -> turn[home] = 0; grant(me, home, answer)
    fi;
    answer = 0; until = 0
  }
wait_turn:
  do
  :: atomic { wstate[me] == GRANTED -> goto waited }
  :: atomic { wstate[me] != GRANTED && ME_FIRST && DUE && !dead[home] -> wlook[me] = 0; goto look }
#ifdef GIVES_UP /* its time is over, or its client gone; awaitOffer: not while a release names it */
  :: atomic { wstate[me] == WAITING && !dead[home] -> wstate[me] = LEFT; printf("%d  locker %d leaves the line\n", now, me); leave_line(me, home); bypassed[me] = 0; goto begin }
#endif
#ifdef HANGING_RELEASES /* but not for ever */
  :: atomic { wstate[me] == OFFERED && !dead[home] -> wstate[me] = LEFT; printf("%d  locker %d leaves the line\n", now, me); leave_line(me, home); bypassed[me] = 0; goto begin }
#endif
  od;
waited:
  atomic {
    wstate[me] = IDLE; mine = wtoken[me]; wtoken[me] = 0;
#ifdef GIVES_UP
    if :: goto releasing /* its client has gone just now: nobody is there to hold it */ :: true fi
#endif
  }
#else
try:
  atomic { lock_lua(me, home, TRY); say_lock(TRY); mine = r_token; look_after(home); if :: mine == 0 -> goto try_again :: else -> goto holding fi }
try_again:
  if
  :: atomic { now < END && !dead[home] -> goto try }
  OR_SLEEP(try_again)
  fi;
#endif

holding:
  if
  :: true
#ifdef RELOCKS
  :: atomic { !relocked -> relock_lua(mine, me, RELOCKS); printf("%d  locker %d RELOCK %d: %d\n", now, me, mine, r_freed); relocked = 1; goto holding }
#endif
#ifdef FENCES
  :: goto fence
#endif
#ifdef HOLDERS_CRASH
  :: goto crashed
#endif
  OR_SLEEP(holding)
  fi;

releasing:
  atomic { /* unlock.go: release; line.offer */
    relocked = 0;
    if :: dead[home] && PROXIES > 1 -> home = 1 - home :: else fi;
    !dead[home];
    if
    :: len(line[home]) == 0 -> kind = NONE
    :: else ->
       line[home] ? <first_>;
       if
#ifdef PLAIN_SEEN
       :: kind = FREE
#endif
#ifdef GAPS
       :: kind = GAP
#endif
       :: wstate[first_] != WAITING -> kind = SELF
       :: wstate[first_] == WAITING ->
          wstate[first_] = OFFERED; next = first_; named[next]++;
          kind = (turn[home] == 0 -> TURN : NEXT)
       fi
    fi
  }
  atomic { unlock_lua(mine, owner, home, kind, next); say_unlock();
           answer = r_token; freed = r_freed; self = r_self }
  atomic { /* line.answered */
    !dead[home];
    mine = 0; owner = me;
    if
    :: next != NOBODY ->
       named[next]--;
       if
       :: wstate[next] == OFFERED && answer == 0 -> wstate[next] = WAITING; arm(next, lasts[home])
       :: wstate[next] == OFFERED && answer > 0 -> grant(next, home, answer)
#ifndef BREAK_FORGETS_WHO_LEFT
       :: wstate[next] == LEFT && answer > 0 -> mine = answer; owner = NOBODY
#endif
       :: else
       fi
    :: else
    fi;
    if
    :: freed && answer == 0 && next != NOBODY -> yielded(home, RESERVATION)
    :: kind == GAP -> yielded(home, 0)
    :: else
    fi;
#ifndef BREAK_NO_LOOK_AFTER_RELEASE
    if :: (self || kind == NONE) && len(line[home]) > 0 -> line[home] ? <first_>; wlook[first_] = 1 :: else fi;
#endif
    answer = 0; kind = NONE; next = NOBODY; freed = 0; self = 0;
    if :: mine > 0 -> goto releasing /* releaseToken: it was given to one who had left */ :: else -> home = HOME(me); goto begin fi
  }

#ifdef FENCES
fence: /* fence.go */
  atomic { watching[me] = WATCHED }
  atomic { /* check.lua */
    read_lua();
    if :: held && state == HELD && token == mine :: else -> watching[me] = 0; goto releasing fi
  }
  atomic { /* EXEC */
    if
#ifdef BREAK_FENCE_UNWATCHED
    :: true ->
#else
    :: watching[me] == CHANGED -> goto fence
    :: else ->
#endif
       if :: mine < fenced -> fenced_order = false; assert(fenced_order) :: else fi;
       fenced = mine; watching[me] = 0; goto releasing
    fi
  }
#endif
#ifdef HOLDERS_CRASH
crashed:
#endif
  skip
}
