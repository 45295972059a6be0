/* The plain clients: L1, L2, L3 and L5 of examples/older, one command of theirs a step, and their looks at the clock steps of their
own. All have the upstream's clock. A try that fails is begun again at any time; a lock that is won is released at any time, or not. */

byte busy[PLAINS];   /* 0, or 1 + how many ticks its commands have taken so far */

#define PLAIN(me) busy[me - LOCKERS]
#define BUSY(me)  PLAIN(me) = 1
#define REST(me)  PLAIN(me) = 0

hidden byte old_;

/* SETNX; won says whether it took it. */
inline setnx(me, text, won) {
  printf("%d  plain %d SETNX %d: %d\n", now, me, text, value == 0);
  won = (value == 0);
  if
  :: value == 0 ->
     acquired_by_plain(me, text, BY_SETNX);
     value = text; ttl = 0; writer = me; late_write = 1; touched()
  :: else
  fi
}

/* GETSET by one who has won with it if `wins`, which may look at old_: the value that it returns. */
inline getset(me, text, wins) {
  old_ = value;
  printf("%d  plain %d GETSET %d: %d\n", now, me, text, value);
  if
  :: wins && old_ == 0 -> acquired_by_plain(me, text, BY_SETNX)
  :: wins && old_ > 0  -> acquired_by_plain(me, text, BY_GETSET)
  :: else
  fi;
  if :: text != value -> harms(me, EX_SHORTER, EX_CHANGED) :: else fi;
  value = text; ttl = 0; writer = me; touched()
}

inline del(me) {
  printf("%d  plain %d DEL: %d\n", now, me, value);
  harms(me, EX_DEL_SETNX, EX_DELETED);
  value = 0; ttl = 0; writer = BY_LOCK;
  lease[me] = 0; harmed[me] = 0; touched()
}

proctype L1(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine, won); if :: won -> goto inside :: else fi }
  atomic { old = value; printf("%d  plain %d GET: %d\n", now, me, value) }
  atomic {
    if
    :: old > 0 && old <= now -> mine = now + PLAIN_TIMEOUT; old = 0
    :: else -> mine = 0; old = 0; REST(me); goto begin
    fi
  }
  atomic { getset(me, mine, old_ <= now); old = old_; if :: old <= now -> goto inside :: else fi }
  atomic { /* has what was returned expired? */
    if
    :: old <= now && mine > now -> acquired_by_plain(me, mine, BY_CLOCK); harmed[me] = harmed[me] | EX_SLOW
    :: old <= now && mine <= now
    :: else -> mine = 0; old = 0; REST(me); goto begin
    fi
  }
inside:
  atomic { won = 0; old = 0; rounds++; REST(me) }
  atomic { if :: now < mine -> BUSY(me) :: else -> goto over fi }
  atomic { del(me) }
over:
  atomic { mine = 0; lease[me] = 0; harmed[me] = 0; REST(me); goto begin }
}

proctype L2(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine, won); if :: won -> goto inside :: else fi }
  atomic { old = value; printf("%d  plain %d GET: %d\n", now, me, value) }
  atomic { if :: old > 0 && now > old -> old = 0 :: else -> mine = 0; old = 0; REST(me); goto begin fi } /* nil is an exception */
  atomic { getset(me, mine, old_ > 0 && now > old_); old = old_; if :: old > 0 && now > old -> goto inside :: else fi }
  atomic {
    if
    :: old > 0 && now > old && mine > now -> acquired_by_plain(me, mine, BY_CLOCK); harmed[me] = harmed[me] | EX_SLOW
    :: old > 0 && now > old && mine <= now
    :: else -> mine = 0; old = 0; REST(me); goto begin
    fi
  }
inside:
  atomic { won = 0; old = 0; rounds++; REST(me) }
  atomic { if :: now < mine -> BUSY(me) :: else -> goto over fi }
  atomic { del(me) }
over:
  atomic { mine = 0; lease[me] = 0; harmed[me] = 0; REST(me); goto begin }
}

proctype L3(byte me) {
  byte mine = 0, old = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { setnx(me, mine, won); if :: won -> goto inside :: else fi }
  atomic { old = value; printf("%d  plain %d GET: %d\n", now, me, value) }
  atomic { if :: old > 0 && old < now -> mine = now + PLAIN_TIMEOUT :: else -> mine = 0; old = 0; REST(me); goto begin fi }
  atomic { getset(me, mine, old_ == old); if :: old_ == old -> goto inside :: else -> mine = 0; old = 0; REST(me); goto begin fi }
inside:
  atomic { won = 0; old = 0; rounds++; mine = now + PLAIN_TIMEOUT; REST(me) } /* it measures its work by itself, from now */
  atomic { if :: now < mine -> BUSY(me) :: else -> goto over fi }
  atomic { del(me) }
over:
  atomic { mine = 0; lease[me] = 0; harmed[me] = 0; REST(me); goto begin }
}

proctype L5(byte me) {
  byte mine = 0, rounds = 0;
  bit won = 0;
begin:
  atomic { now < END && rounds < PLAIN_ROUNDS -> BUSY(me); mine = now + PLAIN_TIMEOUT }
  atomic { /* the script that acquires; its now is the client's, mine - PLAIN_TIMEOUT */
    setnx(me, mine, won);
    if
    :: won
    :: !won && mine - PLAIN_TIMEOUT > value ->
       acquired_by_plain(me, mine, BY_GETSET); harms(me, EX_SHORTER, EX_CHANGED);
       value = mine; ttl = 0; writer = me; touched()
    :: else -> mine = 0; REST(me); goto begin
    fi
  }
  atomic { won = 0; rounds++; REST(me) }
  atomic { true -> BUSY(me) }
  atomic { /* the script that releases: its own timestamp is the proof */
    if :: value == mine -> del(me) :: else fi;
    mine = 0; lease[me] = 0; harmed[me] = 0; REST(me); goto begin
  }
}
