/* What a proxy knows: queue/queue.go, and the parts of wait.go, poll.go, lock.go and fence.go that are no steps of their own. */

chan line[PROXIES] = [LOCKERS] of { byte }; /* who waits here, in order of arrival */
byte turn[PROXIES];       /* grants left before waiters of other proxies go first */
bit message[PROXIES];     /* hints/listener.go: on its way, the lock is reserved for the first waiter here */
bit giving[PROXIES];      /* hints/listener.go: it is to give back what is reserved for it */
bit looking[PROXIES];     /* grace.go; it looks after a lock that was taken over */

mtype wstate[LOCKERS] = IDLE; /* of the locker as a waiter */
byte wtoken[LOCKERS];
bit wlook[LOCKERS];       /* the lock may be free: look at once */
bit reqs[LOCKERS];        /* which request is the locker's own now */
byte named[LOCKERS];      /* releases under way that concern it: till then it begins nothing new, since reqs is but one bit */

hidden byte first_;

/* When the first in line looks by itself. */
#ifdef POLLS
byte look_by[LOCKERS];
byte lease_here[PROXIES] = LOOK; /* line.lease */
hidden byte d_;
#define LOOKS_BY_ITSELF(w) (now >= look_by[w])
inline arm(w, d) { d_ = (d); look_by[w] = now + (d_ < LOOK -> d_ : LOOK) }
#ifdef BREAK_WAKE_PUTS_OFF
#define ARMED(w) false
#else
#define ARMED(w) (look_by[w] > 0)
#endif
inline arm_sooner(w, d) {
  d_ = ((d) < LOOK -> (d) : LOOK);
  if :: !ARMED(w) || look_by[w] > now + d_ -> look_by[w] = now + d_ :: else fi
}
inline lasts_here(p, d) { lease_here[p] = d }
inline wake_first(p) { if :: len(line[p]) > 0 -> line[p] ? <first_>; arm_sooner(first_, lease_here[p]) :: else fi }
inline disarm(w) { look_by[w] = 0 }
#else
#define LOOKS_BY_ITSELF(w) false
inline arm(w, d) { skip }
inline lasts_here(p, d) { skip }
inline wake_first(p) { skip }
inline disarm(w) { skip }
#endif

/* Waiters who have been refused, and so are listed. A LOCK without WAIT overtakes none of another proxy, nor is it refused for nobody. */
#ifdef TRIER
bit refused[LOCKERS];
inline is_refused(w, yes) { refused[w] = yes }
inline overtakes(p) {
  a_ = 0;
  do
  :: a_ < LOCKERS -> if :: HOME(a_) != p && refused[a_] && wstate[a_] == WAITING && !dead[HOME(a_)] -> assert(fair) :: else fi; a_++
  :: else -> break
  od
}
inline refused_though_free(how_) {
  if :: how_ == TRY && !SOMEBODY_WAITS && !giving[0] && !giving[1] && !dead[0] && !dead[1] -> assert(prompt) :: else fi
}
#else
inline is_refused(w, yes) { skip }
inline overtakes(p) { skip }
inline refused_though_free(how_) { skip }
#endif

/* How fair it is: grants to others while a waiter has found the lock held, and nothing is under way that wakes it. */
#ifdef CHECK_FAIR
bit asleep[LOCKERS];
byte bypassed[LOCKERS];
byte in_release[PROXIES];
inline sleeps(w, yes) { asleep[w] = yes; bypassed[w] = 0 }
inline begins_release(p) { in_release[p]++ }
inline ends_release(p) { in_release[p]-- }
inline count_bypass(to) {
  a_ = 0;
  do
  :: a_ < LOCKERS ->
     if
     :: a_ != to && asleep[a_] && wstate[a_] == WAITING && line[HOME(a_)] ? [eval(a_)] && !wlook[a_] && !message[HOME(a_)] && in_release[HOME(a_)] == 0 ->
        bypassed[a_]++;
        if :: bypassed[a_] > CHECK_FAIR -> assert(fair) :: else fi
     :: else
     fi;
     a_++
  :: else -> break
  od
}
#else
inline sleeps(w, yes) { skip }
inline begins_release(p) { skip }
inline ends_release(p) { skip }
inline count_bypass(to) { skip }
#endif

inline publish(q) {
#ifdef MESSAGES_MAY_BE_LOST
  if :: message[q] = 1 :: true fi
#else
  message[q] = 1
#endif
}

/* unlock.go: waitsNoMore. Where there is but one proxy, a reservation is left to end. */
inline gives_back(p) {
#if PROXIES > 1
  giving[p] = 1
#else
  skip
#endif
}

#ifdef CLIENT0
bit held_shared[PROXIES]; /* the last look has found that others share the lock */
#ifdef BREAK_BARS_NOBODY
#define HELD_SHARED(p) false
#else
#define HELD_SHARED(p) held_shared[p]
#endif
inline nobody_waits(p) { if :: len(line[p]) == 0 -> held_shared[p] = 0 :: else fi }
#else
#define HELD_SHARED(p) false
inline nobody_waits(p) { skip }
#endif

/* line.leave: who is first now thinks again when to look. */
inline leave(w, p) {
  line[p] ? <first_>;
  line[p] ?? eval(w);
  if
  :: first_ == w && len(line[p]) > 0 ->
     wake_first(p);
#ifndef BREAK_LOOK_IS_TAKEN_ALONG
     line[p] ? <first_>;
     if :: wstate[w] != GRANTED && (wlook[w] || HELD_SHARED(p)) -> wlook[first_] = 1 :: else fi
#endif
  :: else
  fi;
  nobody_waits(p);
  wlook[w] = 0; disarm(w); sleeps(w, 0); is_refused(w, 0)
}

/* line.grant */
inline grant(w, p, t) {
  if :: line[p] ? [eval(w)] :: else -> assert(fair) fi; /* in order of arrival */
  wstate[w] = GRANTED; wtoken[w] = t;
  if :: turn[p] == 0 -> turn[p] = len(line[p]) :: else fi;
  turn[p]--;
  at = TIMEOUT_OF(w); lasts_here(p, at);
  leave(w, p)
}

inline yielded(p, d) { turn[p] = 0; lasts_here(p, d); wake_first(p) }

inline look_now(p) { if :: len(line[p]) > 0 -> line[p] ? <first_>; wlook[first_] = 1 :: else fi }

/* unlock.go: beginRelease; queue/release.go: offer */
inline begin_release(p, kind, next) {
  begins_release(p);
  if
  :: len(line[p]) == 0 -> kind = NONE
  :: else ->
     line[p] ? <first_>;
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
        kind = (turn[p] == 0 -> FAIR : NEXT)
     fi
  fi
}

/* unlock.go: finishRelease; queue/queue.go: endOffer. What was given to one that has left is released as left_to's. */
inline finish_release(p, kind, next, answer, freed, self, mine, left_to) {
  ends_release(p);
  mine = 0;
  if :: left_to != NOBODY -> named[left_to]--; left_to = NOBODY :: else fi;
  if
  :: next != NOBODY ->
     named[next]--;
     if
     :: wstate[next] == OFFERED && answer == 0 -> wstate[next] = WAITING; wake_first(p)
     :: wstate[next] == OFFERED && answer > 0 -> grant(next, p, answer)
     :: wstate[next] == LEFT && answer > 0 ->
        WITNESSED(SEEN_LEFT);
#ifndef BREAK_KEEPS_WHAT_LEFT
        mine = answer; left_to = next; named[next]++ /* releaseToken */
#endif
     :: else
     fi
  :: else
  fi;
  if
  :: freed && answer == 0 && next != NOBODY -> yielded(p, RESERVATION)
  :: kind == GAP -> yielded(p, 0)
  :: else
  fi;
#ifndef BREAK_NO_LOOK_AFTER_RELEASE
  if :: self || kind == NONE -> look_now(p) :: else fi;
#endif
  answer = 0; kind = NONE; next = NOBODY; freed = 0; self = 0
}

/* grace.go: Start. It begins with the answer; a proxy that is late with it is one that has been killed. */
inline look_after(p) {
  if
  :: r_over && !dead[p] -> looking[p] = 1; no_looks = 0
  :: r_over && dead[p] -> no_looks = 1
  :: else
  fi
}

/* fence.go: WATCH of the key, and which token has written last. */
#ifdef FENCES
mtype = { UNWATCHED, WATCHED, TOUCHED };
mtype watching[LOCKERS] = UNWATCHED;
byte last_writer;
inline touched() {
  a_ = 0;
  do :: a_ < LOCKERS -> if :: watching[a_] == WATCHED -> watching[a_] = TOUCHED :: else fi; a_++ :: else -> break od
}
#else
inline touched() { skip }
#endif
