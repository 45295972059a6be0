/* What moves all of them: time, the messages and looks of the proxies, crashes; and where it begins. */

#if PROXIES > 1
#define LOOKING (looking[0] || looking[1])
#else
#define LOOKING looking[0]
#endif

/* The last looks come before the settling time is over, whatever else is late. */
#ifdef BREAK_NO_LOOKS
#define LOOKS_DONE true
#else
#define LOOKS_DONE (!LOOKING || looked)
#endif

/* How many ticks a plain client's commands, from its first to its last, may take. */
#if PLAINS > 0 && defined(GAP_TICKS)
#define WITHIN_GAP(k) (busy[k] <= GAP_TICKS)
#if PLAINS > 1
#define PLAINS_DONE (WITHIN_GAP(0) && WITHIN_GAP(1))
#else
#define PLAINS_DONE WITHIN_GAP(0)
#endif
#else
#define PLAINS_DONE true
#endif

hidden byte k_;

inline tick() {
  now++; printf("%d  tick\n", now);
  looked = 0;
#ifdef GAP_TICKS
  k_ = 0;
  do :: k_ < PLAINS -> if :: busy[k_] > 0 -> busy[k_]++ :: else fi; k_++ :: else -> break od;
#endif
  time_passed();
  late_write = 0;
  remove_expired()
}

#ifndef ENDLESS
active proctype Clock() {
end:
  do
#ifdef URGENT
  :: atomic { timeout && now < END -> tick() }
#else
  :: atomic { now < END && LOOKS_DONE && PLAINS_DONE -> tick() }
#endif
  od
}
#endif

#ifndef BREAK_NO_LOOKS
/* lock.go: lookAfter. Proxies that both look are as one. */
active proctype Looks() {
end:
  do
  :: atomic {
       LOOKING && !looked ->
       settle_lua(); printf("%d  settle.lua: %d\n", now, r_settle); looked = 1; late_write = 0;
       if :: r_settle == -1 -> looking[0] = 0; looking[PROXIES - 1] = 0 :: else fi
     }
  od
}
#endif

#if PROXIES > 1 && defined(WAITS)
/* wakes.go: the lock is reserved for the first waiter here. */
proctype Wakes(byte p) {
end:
  do
  :: atomic {
       message[p] -> message[p] = 0;
       if :: len(line[p]) > 0 && !dead[p] -> turn[p] = 0; line[p] ? <first_>; wlook[first_] = 1 :: else fi
     }
  od
}
#endif

#ifdef PROXY_CRASHES
/* Proxy 0 is killed at any time: its waiters and their line are gone, and it looks after nothing any more. */
proctype Crash() {
  atomic {
    dead[0] = 1;
    if :: looking[0] -> looking[0] = 0; no_looks = !LOOKING :: else fi;
    do :: len(line[0]) > 0 -> line[0] ? first_; wstate[first_] = LEFT :: else -> break od
  }
}
#endif

init {
  atomic {
    k_ = 0;
    do :: k_ < PROXIES -> lasts[k_] = LOOK; k_++ :: else -> break od;
    if
    :: true /* nobody has the lock */
#if PLAINS > 0
    :: value = START - 1; writer = NOBODY /* a plain client has crashed with it */
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
#ifdef PROXY_CRASHES
    run Crash()
#endif
  }
}
