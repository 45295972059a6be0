/* The foreign clients: L1, L2, L3 and L5, and today's libraries (NXPX), one command of theirs a step, and their looks at the clock steps of their own. Their clocks are
the upstream's. A try that fails is begun again at any time, a lock that is won is released at any time, or never. */

byte busy[PLAINS]; /* 0; or 1 + how many ticks the commands of this try, or of this release, have taken so far */

#define BUSY(me) busy[me - LOCKERS] = 1
#define REST(me) busy[me - LOCKERS] = 0
#define FORGET   mine = 0; old = 0; won = 0; REST(me)

hidden byte old_;

inline setnx(p, text) {
  printf("%d  plain %d: SETNX %d %d\n", now, p, text, value == 0);
  won = value == 0;
  if
  :: won ->
     acquired_by_plain(p, text, BY_SETNX);
     value = text; ttl = 0; writer = p; late_write = 1; touched()
  :: else
  fi
}

inline get(p) { old = value; printf("%d  plain %d: GET %d\n", now, p, old) }

/* GETSET. wins tells whether what it returns, old_, means that p has won. */
inline getset(p, text, wins) {
  old_ = value;
  printf("%d  plain %d: GETSET %d %d\n", now, p, text, old_);
  won = wins;
  if
  :: won && old_ == 0 -> acquired_by_plain(p, text, BY_SETNX)
  :: won && old_ > 0  -> acquired_by_plain(p, text, BY_GETSET)
  :: else
  fi;
  if :: text != value -> harms(p, EX_SHORTER, EX_CHANGED) :: else fi;
  value = text; ttl = 0; writer = p; touched()
}

inline del(p) {
  printf("%d  plain %d: DEL, which was %d\n", now, p, value);
  harms(p, EX_DEL_SETNX, EX_DELETED);
  value = 0; ttl = 0; writer = BY_LOCK; lease[p] = 0; harmed[p] = 0; touched()
}

/* Within the lock, and its release by one who looks at its clock first. */
#define WORK_AND_DEL \
  atomic { won = 0; old = 0; rounds++; REST(me) } \
  atomic { if :: now < mine -> BUSY(me) :: else -> goto late fi } \
  atomic { del(me) } \
late: \
  atomic { lease[me] = 0; harmed[me] = 0; FORGET; goto begin }

/* L1 and L2, who compare what GETSET has returned with their clock, which has gone on meanwhile. */
#define JUDGE_LATE(expired) \
  atomic { \
    if \
    :: expired -> printf("%d  plain %d: takes %d for expired\n", now, me, old); acquired_by_plain(me, mine, BY_CLOCK) \
    :: else -> FORGET; goto begin \
    fi \
  }

proctype L1(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine); if :: won -> goto inside :: else fi }
  atomic { get(me) }
  atomic { if :: old > 0 && old <= now -> mine = now + PLAIN_TIMEOUT; old = 0 :: else -> FORGET; goto begin fi }
  atomic { getset(me, mine, old_ <= now); old = old_; if :: won -> goto inside :: else fi } /* nil counts as expired */
  JUDGE_LATE(old <= now);
inside:
  WORK_AND_DEL
}

proctype L2(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine); if :: won -> goto inside :: else fi }
  atomic { get(me) }
  atomic { if :: old > 0 && now > old -> old = 0 :: else -> FORGET; goto begin fi } /* nil is an exception */
  atomic { getset(me, mine, old_ > 0 && now > old_); old = old_; if :: won -> goto inside :: else fi }
  JUDGE_LATE(old > 0 && now > old);
inside:
  WORK_AND_DEL
}

proctype L3(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine); if :: won -> goto inside :: else fi }
  atomic { get(me) }
  atomic { if :: old > 0 && old < now -> mine = now + PLAIN_TIMEOUT :: else -> FORGET; goto begin fi }
  atomic { getset(me, mine, old_ == old); if :: won -> goto inside :: else -> FORGET; goto begin fi }
inside:
  atomic { mine = now + PLAIN_TIMEOUT } /* it measures its work by itself, from now on */
  WORK_AND_DEL
}

proctype L5(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { /* its script that acquires, with the client's time, which is mine - PLAIN_TIMEOUT */
    setnx(me, mine);
    if
    :: !won && mine - PLAIN_TIMEOUT > value -> getset(me, mine, true)
    :: !won && mine - PLAIN_TIMEOUT <= value -> FORGET; goto begin
    :: else
    fi
  }
  atomic { won = 0; rounds++; REST(me) }
  atomic { true -> BUSY(me) }
  atomic { /* its script that releases: its own timestamp is the proof */
    if :: value == mine -> del(me) :: else fi;
    lease[me] = 0; harmed[me] = 0; FORGET; goto begin
  }
}

/* SET key random NX PX, and compare-and-delete in a script. A SET that is refused changes nothing: it is no step. */
proctype NXPX(byte me) {
  byte rounds = 0, until = 0;
begin:
  if
  :: atomic {
       now < END && rounds < PLAIN_ROUNDS && value == 0 -> rounds++;
       printf("%d  plain %d: SET NX PX until %d\n", now, me, now + PLAIN_TIMEOUT);
       if :: token > 0 && state == HELD && !left_alone -> WITNESSED(SEEN_NXPX) :: else fi;
       acquired_by_plain(me, now + PLAIN_TIMEOUT, BY_SETNX); used();
       FOR_EACH_AGENT :: IS_LOCKER(a_) && LIVE(a_) -> harmed[a_] = harmed[a_] | EX_CHANGED
       NEXT_AGENT;
       value = RANDOM + me; ttl = now + PLAIN_TIMEOUT; writer = me; late_write = 1; touched()
     }
  OR_SLEEP(begin)
  fi;
inside:
  if
  :: atomic {
#ifdef BREAK_DELETES_ANYTHING
       if :: value > 0 -> del(me) :: else fi;
#else
       if :: value == RANDOM + me -> del(me) :: else fi;
#endif
       lease[me] = 0; harmed[me] = 0; goto begin
     }
  OR_SLEEP(inside)
  fi
}
