/* What moves all of them: time, looks, messages, crashes; and how it begins. */

#if PROXIES > 1
#define LOOKING (looking[0] || looking[1])
#else
#define LOOKING looking[0]
#endif

/* Whatever else is late, the looks after a takeover are not. */
#ifdef BREAK_NO_LOOKS
#define LOOKS_DONE true
#else
#define LOOKS_DONE (!LOOKING || looked)
#endif

/* GAP_TICKS: how many ticks the commands of a foreign client's try, or release, may take. */
#if !defined(GAP_TICKS) || PLAINS == 0
#define PLAINS_DONE true
#elif PLAINS == 1
#define PLAINS_DONE (busy[0] <= GAP_TICKS)
#else
#define PLAINS_DONE (busy[0] <= GAP_TICKS && busy[1] <= GAP_TICKS)
#endif

#ifndef CLIENT0
/* CHECK_PROMPT: for how many ticks a lock may be free while somebody waits for it. Nor may one be kept for a waiter who has left. */
#ifdef CHECK_PROMPT
inline check_prompt() {
  read_lua();
  if :: !held && !plain && !other && SOMEBODY_WAITS -> unused++ :: else -> unused = 0 fi;
  if :: unused > CHECK_PROMPT -> assert(prompt) :: else fi;
#ifndef PROXY_CRASHES
  if :: held && state == HELD && now < expires && !LIVE(connection) && !LATE_BUSY -> assert(no_dead_holder) :: else fi
#endif
}
#else
inline check_prompt() { skip }
#endif
#endif

/* Where nobody is late, no place outlasts its time. */
#if defined(PLACE) && defined(URGENT)
inline check_place() { if :: placed && now >= place_until -> assert(bounded) :: else fi }
#else
inline check_place() { skip }
#endif

inline tick() {
  check_prompt(); check_place();
  now++; looked = 0; late_rests_no_more();
  printf("%d  -----\n", now);
#if defined(GAP_TICKS) && PLAINS > 0
  k_ = 0;
  do :: k_ < PLAINS -> if :: busy[k_] > 0 -> busy[k_]++ :: else fi; k_++ :: else -> break od;
#endif
  time_passed();
  remove_expired()
}

#ifndef ENDLESS
active proctype Clock() {
#ifdef CLOCK_STEPS_BACK
  bit stepped = 0;
#endif
end:
  do
#ifdef URGENT
  :: atomic { timeout && now < END -> tick() }
#else
  :: atomic { now < END && LOOKS_DONE && PLAINS_DONE -> tick() }
#endif
#ifdef CLOCK_STEPS_BACK
  :: atomic { !stepped && now - CLOCK_STEPS_BACK > 0 -> stepped = 1; now = now - CLOCK_STEPS_BACK; printf("%d  -----  the clock has been set back\n", now) }
#endif
  od
}
#endif

#if !defined(BREAK_NO_LOOKS) && !defined(CLIENT0)
/* grace.go: repair, once a tick. Two proxies that repair are as one. */
active proctype Looks() {
end:
  do
  :: atomic {
       LOOKING && !looked ->
       repair_lua(); printf("%d  repair.lua %d\n", now, r_repair); looked = 1; late_write = 0;
       if :: r_repair == -1 -> looking[0] = 0; looking[PROXIES - 1] = 0 :: else fi
     }
  od
}
#endif

#if PROXIES > 1 && defined(WAITS)
/* hints/listener.go: the lock is reserved for the first waiter here. */
proctype Wakes(byte p) {
end:
  do
  :: atomic {
       message[p] -> message[p] = 0;
       if
       :: dead[p]
       :: !dead[p] && len(line[p]) > 0 -> turn[p] = 0; look_now(p)
       :: else -> gives_back(p)
       fi
     }
  :: atomic { giving[p] -> giving[p] = 0; if :: !dead[p] -> give_back_lua(p); look_now(p) :: else fi }
  od
}
#endif

#ifdef UNBLOCKS
/* CLIENT UNBLOCK of locker UNBLOCKS, at any time: it ends the wait and answers 1, or answers 0 and does nothing. queue/refuse.go */
active proctype Unblocks() {
end:
  do
  :: atomic {
       !told_unblocked && (wstate[UNBLOCKS] == WAITING || wstate[UNBLOCKS] == OFFERED) && !dead[HOME(UNBLOCKS)] ->
       printf("%d  locker %d is unblocked: 1\n", now, UNBLOCKS); told_unblocked = 1;
#ifndef BREAK_UNBLOCK_ENDS_NOTHING
       if :: len(line[HOME(UNBLOCKS)]) == 1 -> gives_back(HOME(UNBLOCKS)) :: else fi;
       wstate[UNBLOCKS] = LEFT; lease[UNBLOCKS] = 0; leave(UNBLOCKS, HOME(UNBLOCKS))
#endif
     }
  od
}
#endif

#ifdef PROXY_CRASHES
/* Proxy 0 is killed at some time: its line is gone, and it looks after nothing any more. */
proctype Crash() {
  byte at_tick;
  select (at_tick : START..END);
  atomic {
    now == at_tick;
    dead[0] = 1; at_tick = 0; printf("%d  proxy 0 is killed\n", now);
    if :: message[0] && len(line[0]) > 0 -> WITNESSED(SEEN_KILLED) :: else fi;
    if :: looking[0] -> looking[0] = 0; no_looks = !LOOKING :: else fi;
    do :: len(line[0]) > 0 -> line[0] ? first_; wstate[first_] = LEFT :: else -> break od
  }
}
#endif

init {
  atomic {
    if
    :: true /* nobody has the lock */
#if PLAINS > 0
    :: value = START - 1; writer = 254 /* a foreign client has crashed with it, and it has expired */
#endif
    fi;
    k_ = 0;
    do :: k_ < LOCKERS -> run Locker(k_); k_++ :: else -> break od;
#ifdef PLAIN1
    run PLAIN1(LOCKERS);
#endif
#ifdef PLAIN2
    run PLAIN2(LOCKERS + 1);
#endif
#if PROXIES > 1 && defined(WAITS)
    run Wakes(0); run Wakes(1);
#endif
#ifdef ABANDONS
    run Abandoned(0);
#if PROXIES > 1
    run Abandoned(1);
#endif
#endif
#ifdef ONCES
    run Deletes();
#endif
#ifdef PROXY_CRASHES
    run Crash()
#endif
  }
}
