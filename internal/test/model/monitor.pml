/* What must always be true. Nothing here decides what any program does.

A lock that LOCK gave is its holder's from the script that gave it until the script that released it, or its timeout by the
upstream's clock: longer than a client can think so, which counts from before it asked and stops before it sends UNLOCK. A plain
client's is its own from the command that won it until its own timestamp, or its DEL. Overlaps are looked for when a lock is won:
between LOCK and LOCK, and between LOCK and foreign clients. What foreign clients do to one another is theirs alone.

What foreign clients may do to a lock is an excuse, one bit each. WITHOUT takes excuses away: then spin finds what they stand for. */

#define EX_SHORTER   1   /* while it settled its timestamp was replaced, and a foreign client believed that before it was put right */
#define EX_DEL_SETNX 2   /* while it settled it was deleted, and a foreign client took it before it was put right */
#define EX_DELETED   4   /* it was deleted when it did not settle: free */
#define EX_CHANGED   8   /* its timestamp was replaced when it did not settle: its holder's no more */
#define EX_FRESH     16  /* the same, but just after a lock of LOCK's had expired, so that Redis had removed the key */
#define EX_LATE      32  /* its timestamp was replaced between the last look and the end of the grace period */
#define EX_PLAIN     128 /* a foreign client's lock was deleted or replaced by another foreign client */
#define EX_SLOW      256 /* a foreign client judged what GETSET had returned only when that had expired too */
#define EX_ALL       511

#ifndef WITHOUT
#define WITHOUT 0
#endif
#define EXCUSES (EX_ALL - (WITHOUT))

#define NO_MORE_ITS_OWN (EX_DELETED | EX_CHANGED | EX_FRESH | EX_LATE) /* for nobody, other LOCKs included */

byte lease[AGENTS];   /* until when the agent may think that it has the lock; 0: it doesn't */
short harmed[AGENTS]; /* what has been done to that lock */
byte fresh_until;     /* until when losers may write who saw the lock of LOCK's that has just expired */
byte writer = BY_LOCK;
bit late_write;       /* in this tick, a foreign client has written since repair.lua ran */
#ifdef CHECK_TOKENS
byte highest;         /* the highest token given */
#endif

#define LIVE(a)      (lease[a] > now)
#define IS_LOCKER(a) (a < LOCKERS)

hidden byte a_;
hidden short ex_;

#define FOR_EACH_AGENT a_ = 0; do :: a_ < AGENTS -> if
#define NEXT_AGENT     :: else fi; a_++ :: else -> break od

/* What excuses that locker i, or a script on its behalf, disregards a_'s lock. */
#define EXCUSE (harmed[a_] & EXCUSES & (IS_LOCKER(a_) -> NO_MORE_ITS_OWN : EX_ALL))

#ifdef CHECK_PROMPT
byte unused; /* for how many ticks the lock has been free while somebody waits for it */
inline used() { unused = 0 }
#else
inline used() { skip }
#endif

inline say_overlap(i) { printf("%d  client %d has the lock now, which is client %d's until %d\n", now, i, a_, lease[a_]) }

inline acquired_by_lock(i, until, tok) {
  FOR_EACH_AGENT :: a_ != i && !OF_ONE_OWNER(a_, i) && LIVE(a_) && EXCUSE == 0 -> say_overlap(i); assert(exclusion)
  NEXT_AGENT;
  if :: wstate[i] != LEFT && !FOR_NOBODY -> lease[i] = until; harmed[i] = 0 :: else fi;
#ifdef CHECK_TOKENS
  if :: tok <= highest -> assert(tokens_rise) :: else fi;
  highest = tok;
#endif
#if defined(MAX) && defined(URGENT)
  since[i] = now;
#endif
  used();
  count_bypass(i)
}

#if defined(MAX) && defined(URGENT)
/* Nobody is late: a lock with MAX has ended when that is over. */
byte since[LOCKERS];
inline check_max() {
  FOR_EACH_AGENT :: LIVE(a_) && now > since[a_] + MAX -> printf("%d  client %d has the lock since %d\n", now, a_, since[a_]); assert(bounded)
  NEXT_AGENT
}
#else
inline check_max() { skip }
#endif

/* The guard lets a holder renew a lock that is over, if nobody has taken it. */
inline renewed(i, until) { if :: LIVE(i) || (GUARD > 0 && wstate[i] != LEFT) -> lease[i] = until :: else fi }

/* A script writes over the key on behalf of locker i, or NOBODY: no lock of anybody else may be there. */
inline overwritten_by_lock(i) {
  FOR_EACH_AGENT
  :: a_ != i && !OF_ONE_OWNER(a_, i) && LIVE(a_) ->
     ex_ = EXCUSE;
     if :: ex_ == 0 -> printf("%d  a script writes over the lock that is client %d's until %d\n", now, a_, lease[a_]); assert(own_release) :: else fi
  NEXT_AGENT
}

inline released_by_lock(i) {
  overwritten_by_lock(i);
  if :: i != NOBODY -> lease[i] = 0; harmed[i] = 0 :: else fi;
#ifdef SAME_OWNER /* what one connection releases is its owner's */
  if :: i < 2 -> lease[0] = 0; lease[1] = 0 :: else fi
#endif
}

/* How a foreign client wins, and what excuses that. */
#define BY_SETNX  (NO_MORE_ITS_OWN | EX_DEL_SETNX)
#define BY_GETSET (NO_MORE_ITS_OWN | EX_DEL_SETNX | EX_SHORTER)
#define BY_CLOCK  (NO_MORE_ITS_OWN | EX_DEL_SETNX | EX_SHORTER | EX_SLOW)

/* Plain client p wins the lock for its own timestamp's time, with a command that is about to write. A lock that was won by one of the
two residues of the grace period, or too late, is none to anybody else. */
inline acquired_by_plain(p, until, way) {
  harmed[p] = (way) & EX_SLOW;
  if
  :: state == RESERVED && now < expires && now < settles && value != written ->
     harmed[p] = harmed[p] | (value == 0 -> EX_DEL_SETNX : EX_SHORTER)
  :: else
  fi;
  if
  :: until > now ->
     FOR_EACH_AGENT
     :: IS_LOCKER(a_) && LIVE(a_) ->
        ex_ = (harmed[a_] & (way)) | (EX_SLOW & (way));
        if :: (ex_ & EXCUSES) == 0 -> say_overlap(p); assert(exclusion) :: else fi;
        harmed[p] = harmed[p] | (ex_ & (EX_SHORTER | EX_DEL_SETNX))
     NEXT_AGENT
  :: else
  fi;
  lease[p] = until;
  if :: token > 0 && state == HELD && now >= expires && value == written -> WITNESSED(SEEN_PLAIN_TAKES) :: else fi
}

/* Plain client p replaces or deletes what is at the key: whose lock that is, and what becomes of it. */
inline harms(p, while_settling, otherwise) {
  late_write = 1;
  FOR_EACH_AGENT
  :: a_ != p && LIVE(a_) ->
     ex_ = (otherwise == EX_CHANGED && now < fresh_until -> EX_FRESH : otherwise);
     if
     :: !IS_LOCKER(a_) -> ex_ = EX_PLAIN
     :: IS_LOCKER(a_) && now < settles && now < expires && state == HELD && connection == a_ -> ex_ = while_settling
     :: else
     fi;
     harmed[a_] = harmed[a_] | ex_
  NEXT_AGENT
}

inline put_right() {
  harmed[connection] = harmed[connection] & (EX_ALL - (EX_SHORTER | EX_DEL_SETNX));
  late_write = 0
}

/* A lock is taken that had expired and is gone by now: none that settles. */
inline taken_fresh() {
  if :: value == 0 && token > 0 && state != RELEASED && !left_alone && now < over + SETTLE -> fresh_until = now + SETTLE :: else fi
}

inline taken_from_reservation(p) {
  if
  :: held && state == RESERVED ->
     WITNESSED(SEEN_RESERVATION);
     if :: connection != p -> assert(reservation) :: else fi
  :: else
  fi
}

/* The clock has moved on. A holder whose grace period is over has its own timestamp at the key again. */
inline time_passed() {
  if
  :: token > 0 && now == settles && state == HELD && now < expires ->
     if
     :: value == written -> put_right()
     :: IS_RANDOM(value) -> skip /* another library has taken it since it was deleted: it is its holder's no more */
     :: value != written && (late_write || no_looks) ->
        if :: LIVE(connection) -> harmed[connection] = harmed[connection] | EX_LATE :: else fi
     :: else -> assert(settled)
     fi
  :: else
  fi;
  check_max();
  late_write = 0;
  if :: fresh_until > 0 && now >= fresh_until -> fresh_until = 0 :: else fi;
  FOR_EACH_AGENT :: lease[a_] > 0 && !LIVE(a_) -> lease[a_] = 0; harmed[a_] = 0
  NEXT_AGENT
}
