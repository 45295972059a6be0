/* LOCKALL, where ALLS is defined: how many of the clients ask for both of two locks; the others ask for one, in turns. One proxy, one
queue for each lock, and no time passes. lockall.go, all.lua, all_each.lua; LOCK and UNLOCK are as short as can be.

That a script runs and that its answer is dealt with are two steps, since anything may come between. */

#define LOCKS 2
#define WANTS_ALL(i) ((i) < ALLS)
#define WANTS_IT(i, k) (WANTS_ALL(i) || (i) % LOCKS == (k))
#define NEXT_OF(t) ((t) % 6 + 1)

chan queued[LOCKS] = [LOCKERS] of { byte };
byte holds[LOCKS] = NOBODY; /* the record: who has it */
byte tokens[LOCKS];         /* the last token given */
mtype waits[LOCKERS] = IDLE;
byte has[LOCKERS];          /* the token that the client knows */
bit looks[LOCKERS];         /* a lock may be free */
byte missed[LOCKERS];       /* how often a lock that it is first for was given to others */

hidden byte k_, first_, top_, all_free;

#define FIRST_FOR(i, k) (queued[k] ? [eval(i)])
#define FIRST_EVERYWHERE(i) ((!WANTS_IT(i, 0) || FIRST_FOR(i, 0)) && (!WANTS_IT(i, 1) || FIRST_FOR(i, 1)))
#define FREE_FOR(i) ((!WANTS_IT(i, 0) || holds[0] == NOBODY) && (!WANTS_IT(i, 1) || holds[1] == NOBODY))

inline wake(k) { if :: len(queued[k]) > 0 -> queued[k] ? <first_>; looks[first_] = 1 :: else fi }

/* A client is given a lock: nobody else has it, and whoever is in front of it has been passed over. */
inline given_one(i, k) {
  if :: holds[k] != NOBODY && holds[k] != i -> assert(exclusion) :: else fi;
  holds[k] = i;
  if
  :: len(queued[k]) > 0 ->
     queued[k] ? <first_>;
     if
     :: first_ != i -> missed[first_]++; if :: missed[first_] > ALLS -> assert(fair) :: else fi
     :: else
     fi
  :: else
  fi
}

/* all.lua for client i, as the first everywhere: takes all of them with one token, or none. */
inline take_all(i) {
  all_free = FREE_FOR(i);
#ifdef BREAK_ALL_TAKES_PART
  all_free = true;
#endif
  if
  :: all_free ->
     top_ = 0; k_ = 0;
     do
     :: k_ < LOCKS ->
        if
#ifdef BREAK_ALL_TAKES_PART
        :: WANTS_IT(i, k_) && holds[k_] == NOBODY ->
#else
        :: WANTS_IT(i, k_) ->
#endif
           given_one(i, k_);
#ifdef BREAK_ALL_FIRST_TOKEN
           if :: top_ == 0 -> top_ = tokens[k_] :: else fi
#else
           if :: tokens[k_] > top_ -> top_ = tokens[k_] :: else fi
#endif
        :: else
        fi;
        k_++
     :: else -> break
     od;
     top_++; k_ = 0;
     do
     :: k_ < LOCKS ->
        if
        :: holds[k_] == i -> if :: top_ <= tokens[k_] -> assert(tokens_rise) :: else fi; tokens[k_] = top_
        :: else
        fi;
        k_++
     :: else -> break
     od
  :: else -> top_ = 0
  fi
}

inline leave_all(i) {
  k_ = 0;
  do
  :: k_ < LOCKS -> if :: queued[k_] ?? [eval(i)] -> queued[k_] ?? eval(i); wake(k_) :: else fi; k_++
  :: else -> break
  od;
  looks[i] = 0; missed[i] = 0
}

proctype Client(byte me) {
  byte answer = 0, k = 0, next = NOBODY, rounds = 0;

begin:
  if
  :: atomic {
       rounds < ROUNDS -> rounds++;
       waits[me] = WAITING; k_ = 0; /* in all queues at the same moment: queue.JoinAll */
       do
       :: k_ < LOCKS ->
          if
#ifdef BREAK_ALL_WAITS_IN_ONE
          :: WANTS_IT(me, k_) && (k_ == 0 || !WANTS_ALL(me)) -> queued[k_] ! me
#else
          :: WANTS_IT(me, k_) -> queued[k_] ! me
#endif
          :: else
          fi;
          k_++
       :: else -> break
       od;
       looks[me] = 1
     }
  :: atomic { rounds == ROUNDS -> goto done }
  fi;
wait:
  do
  :: atomic { waits[me] == GRANTED -> break }
#ifdef BREAK_ALL_WAITS_IN_ONE
  :: atomic { waits[me] == WAITING && looks[me] && FIRST_FOR(me, 0) -> looks[me] = 0; take_all(me); answer = top_ };
#else
  :: atomic { waits[me] == WAITING && looks[me] && FIRST_EVERYWHERE(me) -> looks[me] = 0; take_all(me); answer = top_ };
#endif
     atomic {
       if
       :: answer > 0 && waits[me] != GRANTED -> has[me] = answer; waits[me] = GRANTED; leave_all(me)
       :: else
       fi;
       answer = 0
     }
  od;
  atomic { waits[me] = IDLE;
    if :: WANTS_IT(me, 0) && holds[0] != me || WANTS_IT(me, 1) && holds[1] != me -> assert(all_or_none) :: else fi;
    if :: WANTS_ALL(me) && tokens[0] != tokens[1] -> assert(all_or_none) :: else fi };
  k = 0;
release: /* UNLOCK of each, or UNLOCKALL, whose order does not matter */
  do
  :: k < LOCKS && !WANTS_IT(me, k) -> k++
  :: k < LOCKS && WANTS_IT(me, k) ->
     atomic {
       next = NOBODY;
       if
       :: len(queued[k]) > 0 ->
          queued[k] ? <first_>;
          if :: !WANTS_ALL(first_) && waits[first_] == WAITING -> waits[first_] = OFFERED; next = first_ :: else fi
       :: else
       fi
     }
     atomic { /* unlock.lua: to the waiter that it names, or free; a LOCKALL is named by none */
       holds[k] = NOBODY;
       if :: next != NOBODY -> given_one(next, k); tokens[k]++ :: else fi
     }
     atomic {
       if
       :: next != NOBODY -> has[next] = tokens[k]; waits[next] = GRANTED; leave_all(next)
       :: else
#ifndef BREAK_ALL_IS_NOT_WOKEN
          -> wake(k)
#endif
       fi;
       next = NOBODY; k++
     }
  :: k == LOCKS -> break
  od;
  atomic { has[me] = 0; k = 0; goto begin };
done:
  skip
}

init {
  atomic {
    top_ = 0;
    do :: top_ < LOCKERS -> run Client(top_); top_++ :: else -> break od;
    top_ = 0
  }
}
