/* A client that LOCKs, and what its proxy does for it: wait.go, unlock.go (release), held/renew.go, fence.go. That a script runs and that its
answer is dealt with are two steps, since anything may come between. */

#ifdef BREAK_MAX_IS_RENEWED
#define MAX_IS_RENEWED true
#else
#define MAX_IS_RENEWED false
#endif

/* What a trail shows. */
inline say_lock(how) {
  printf("%d  locker %d at proxy %d: LOCK (%e) %d; the key is %d, its lock expires %d, settles %d\n", now, me, home, how, r_token, value, expires, settles)
}
inline say_unlock() {
  printf("%d  locker %d at proxy %d: UNLOCK %d (%e) %d; locker %d gets %d; the key is %d\n", now, me, home, mine, kind, r_freed, next, r_token, value)
}

#ifdef BREAK_ORDER
#define ME_FIRST (line[home] ?? [eval(me)])
#else
#define ME_FIRST (line[home] ? [eval(me)])
#endif
#define MY_STEP  (wstate[me] != GRANTED && ME_FIRST && !dead[home])

/* Where nobody is late (URGENT), time passes only when nothing else can be done: a client chooses to let it. */
#ifdef URGENT
#define OR_SLEEP(then) :: atomic { now < END -> until = now + 1 }; atomic { now >= until; until = 0; goto then }
#else
#define OR_SLEEP(then)
#endif

/* A wait begins when its client is owed nothing: whatever that has sent before, it is in no line until then. */
#ifdef OWED
#define IS_OWED \
  if \
  :: !owes \
  :: owes -> \
owed: \
     if \
     :: atomic { true -> owes = 0; owed_waits = 0 } \
     :: goto owed_for_ever \
     OR_SLEEP(owed) \
     fi \
  fi;
#endif
#if defined(OWED) && defined(BREAK_BEGINS_WHILE_OWED)
#define OWED_BEFORE
#define OWED_BEFORE_POLL IS_OWED
#elif defined(OWED)
#define OWED_BEFORE      IS_OWED
#define OWED_BEFORE_POLL
#else
#define OWED_BEFORE
#define OWED_BEFORE_POLL
#endif
#ifdef PLACE
#ifdef BREAK_PLACE_STAYS
#define STAYS_IN_LINE true
#else
#define STAYS_IN_LINE false
#endif
#ifdef BREAK_PLACE_OVERSTAYS
#define OVERSTAYS true
#else
#define OVERSTAYS false
#endif
#define STILL_ASKS (me == PLACE && now < patience && now < place_until && place_until < now + KEEP)
inline no_place() { placed = 0; place_until = 0 }

/* Where nobody is late, a client that asks in time gets what its place has. */
#ifdef URGENT
inline lost_in_time() { assert(in_turn) }
#else
inline lost_in_time() { skip }
#endif
#endif
#ifdef SILENT
#define ASKS_BY_OWN own = 1
#else
#define ASKS_BY_OWN skip
#endif

proctype Locker(byte me) {
  byte home = HOME(me), owner = me, next = NOBODY, orphan_of = NOBODY;
  byte rounds = 0, mine = 0, answer = 0, until = 0, patience = 0;
  mtype kind = NONE;
  bit freed = 0, self = 0, relocked = 0;
#ifdef MAX
  byte taken = 0, renewed_at = 0;
#endif
#ifdef OWED
  bit owes = 0; /* its client has sent something before */
#endif
#ifdef SILENT
  bit own = 0; /* it asks by a connection of the proxy's own: all but the first script of a wait may */
#endif
#ifdef ONCES
  byte asked = 0, version = 0;                    /* who waited when the value was read, and which it was */
  bit there = 0, polled = 0, asked_itself = 0; /* it was; the locker has polled; its poll gave it the claim */
#endif

begin:
  if
  :: atomic {
       named[me] == 0 && MAY_BEGIN(me) && now < END && !dead[home] && rounds < ROUNDS;
#ifndef ENDLESS
       rounds++;
#endif
#ifdef UNBLOCKS
       if :: me == UNBLOCKS -> told_unblocked = 0 :: else fi;
#endif
       reqs[me] = 1 - reqs[me];
#ifdef OWED
       owes = (me == OWED);
#endif
#ifdef SILENT
       own = 0;
#endif
#ifdef ONCES
       born[me] = deleted;
       if :: made -> goto begin :: else fi /* GET: it has it */
#endif
     }
  OR_SLEEP(begin)
  fi;

#ifdef PLACE
  if :: me == PLACE -> goto asking :: else fi;
#endif
#if defined(WAITS) && defined(TRIER)
  if :: me == TRIER -> goto try :: else fi;
#endif
#ifdef WAITS
  OWED_BEFORE
  atomic { /* wait.go: wait */
    line[home] ! me; wstate[me] = WAITING;
#ifdef OWED
    owed_waits = owed_waits || owes;
#endif
#ifdef GIVES_UP
    if :: patience = now :: patience = now + GIVES_UP :: patience = NEVER fi;
#endif
    if :: ME_FIRST -> goto look :: else -> ASKS_BY_OWN; goto wait_turn fi
  }
look:
  OWED_BEFORE_POLL
#ifdef SILENT
  if
  :: true
  :: atomic { !LATE_BUSY && silences < SILENT -> ask_late(me, own); own = 1; goto silence }
  fi;
#endif
#ifdef ONCES
  if
  :: polled -> /* claim.go: readForAll */
reading:
     atomic { mark_line(home, asked); there = made; version = made_in } /* GET */
     atomic {
       if
       :: there ->
          serve(me, home, asked, version); there = 0; asked = 0; version = 0; lease[me] = (wstate[me] == GRANTED -> lease[me] : 0);
          if
          :: wstate[me] == GRANTED -> /* a release has given it the claim meanwhile */
             wstate[me] = LEFT; mine = wtoken[me]; wtoken[me] = 0; polled = 0; goto releasing
          :: else -> polled = 0; goto begin
          fi
       :: else -> there = 0; asked = 0; version = 0;
          if :: wstate[me] == GRANTED -> goto wait_turn :: wstate[me] == LEFT -> polled = 0; goto begin :: else fi
       fi
     }
  :: !polled -> polled = 1
  fi;
  atomic { /* once.lua */
#ifndef BREAK_CLAIMS_BLINDLY
    if :: made -> WITNESSED(SEEN_MADE_MEANWHILE); answer = MADE; goto claim_asked :: else fi;
#endif
    lock_lua(me, home, FIRST); say_lock(FIRST); answer = r_token; until = r_until
  }
claim_asked:
  atomic {
    if
    :: wstate[me] == LEFT && (answer == 0 || answer == MADE) -> answer = 0; until = 0; polled = 0; goto begin
    :: wstate[me] == LEFT && answer > 0 && answer != MADE ->
       lease[me] = 0; mine = answer; answer = 0; until = 0; polled = 0; owner = NOBODY; orphan_of = me; named[me]++; goto releasing
    :: wstate[me] != LEFT && answer == MADE -> answer = 0; until = 0; if :: wstate[me] == GRANTED -> goto wait_turn :: else -> goto reading fi
    :: else
    fi
  }
#else
  atomic { lock_lua(me, home, FIRST); say_lock(FIRST); look_after(home); answer = r_token; until = r_until; ASKS_BY_OWN }
#endif
#ifdef PLACE
looked_at:
  if
  :: atomic { STILL_ASKS -> place_until = now + KEEP; goto looked_at }
  :: true
  fi;
#endif
  atomic {
    !dead[home];
    if
#ifdef UNBLOCKS /* the wait has ended while this was under way: what it has taken goes back */
    :: wstate[me] == LEFT && answer == 0 -> until = 0; wait_over(me, 0); goto begin
    :: wstate[me] == LEFT && answer > 0 ->
       WITNESSED(SEEN_UNBLOCKED); wait_over(me, 0);
       lease[me] = 0; mine = answer; answer = 0; until = 0; owner = NOBODY; orphan_of = me; named[me]++; goto releasing
#endif
    :: wstate[me] == GRANTED -> WITNESSED(SEEN_LOOK_GRANTED); given_again(me, answer) /* by a release, while this was under way */
    :: wstate[me] == WAITING && answer == 0 -> until = until - now; arm(me, until); sleeps(me, 1); is_refused(me, 1)
    :: wstate[me] == OFFERED && answer == 0 -> until = until - now; arm(me, until); sleeps(me, 1); is_refused(me, 1)
    :: (wstate[me] == WAITING || wstate[me] == OFFERED) && answer > 0 ->
       turn[home] = 0;
#ifdef ONCES
       asked_itself = 1;
#endif
       grant(me, home, answer)
    fi;
    answer = 0; until = 0
  }
#ifdef SILENT
  goto wait_turn;
silence:
  if
  :: atomic { now > late_until -> /* PollAfter */
       late_unknown = 1; if :: wstate[me] == WAITING || wstate[me] == OFFERED -> goto look :: else -> goto wait_turn fi }
  :: atomic { late_own && wstate[me] == LEFT -> look_now(home); goto stopping }
#ifdef GIVES_UP
  :: atomic { late_own && now >= patience -> wlook[me] = 1; goto stopping }
#endif
  fi;
stopping: /* PollStopped; that its client has been told so is another step */
  atomic {
    printf("%d  locker %d leaves the line during its question\n", now, me);
    if
    :: wstate[me] == GRANTED -> goto wait_turn
    :: wstate[me] == LEFT
    :: wstate[me] == WAITING || wstate[me] == OFFERED ->
       if :: len(line[home]) == 1 -> gives_back(home) :: else fi;
       wstate[me] = LEFT; leave(me, home)
    fi;
    lease[me] = 0; patience = 0; wait_over(me, 0); goto begin
  }
#endif
wait_turn:
  do
  :: atomic { wstate[me] == GRANTED -> break }
  :: atomic { MY_STEP && (wlook[me] || LOOKS_BY_ITSELF(me)) -> wlook[me] = 0; sleeps(me, 0); goto look }
#ifdef MAY_LEAVE
  :: atomic { wstate[me] == LEFT -> lease[me] = 0; patience = 0; wait_over(me, 0);
#ifdef ONCES
       polled = 0;
#endif
       goto begin }
#endif
#ifdef PLACE
  :: atomic { wstate[me] != GRANTED && STILL_ASKS -> place_until = now + KEEP }
  :: atomic { /* place.go: advance */
       me == PLACE && (wstate[me] == WAITING || wstate[me] == OFFERED) && now >= place_until && !dead[home] && !STAYS_IN_LINE ->
       printf("%d  locker %d leaves the line\n", now, me); WITNESSED(SEEN_PLACE_LEAVES);
       if :: len(line[home]) == 1 -> gives_back(home) :: else fi;
       wstate[me] = LEFT; leave(me, home); lease[me] = 0; patience = 0; no_place(); goto begin
     }
#endif
#ifdef GIVES_UP /* its time is over, or its client gone; awaitOffer makes it rare that a release names it just now */
  :: atomic {
       (wstate[me] == WAITING || wstate[me] == OFFERED) && now >= patience && !dead[home] ->
       printf("%d  locker %d leaves the line\n", now, me);
#ifdef BREAK_LEAVES_SILENTLY
       if :: wlook[me] && len(line[home]) == 1 -> gives_back(home) :: else fi;
#else
       if :: len(line[home]) == 1 -> gives_back(home) :: else fi;
#endif
       wstate[me] = LEFT; leave(me, home); lease[me] = 0; patience = 0; wait_over(me, 0); goto begin
     }
#endif
  od;
  atomic {
    wait_over(me, 1); wstate[me] = IDLE; mine = wtoken[me]; wtoken[me] = 0; patience = 0;
#ifdef UNBLOCKS
    if :: me == UNBLOCKS && told_unblocked -> assert(as_told) :: else fi;
#endif
#ifdef GIVES_UP
    if :: goto releasing /* its client has gone just now: nobody is there to hold it */ :: true fi
#endif
  }
#ifdef PLACE
  if :: me == PLACE -> goto keeping :: else fi;
#endif
#ifdef ONCES
  polled = 0;
  if
  :: asked_itself -> asked_itself = 0
  :: else -> /* claim.go: handedClaim */
     atomic {
       WITNESSED(SEEN_HANDED_CLAIM);
       if :: made -> goto releasing :: else fi
     }
  fi;
#endif
  goto holding;
#endif
#if !defined(WAITS) || defined(TRIER)
try:
  atomic { lock_lua(me, home, TRY); say_lock(TRY); look_after(home); mine = r_token; if :: mine == 0 -> goto try_again :: else -> skip fi }
  goto holding;
try_again:
  if
  :: atomic { now < END && !dead[home] -> goto try }
  OR_SLEEP(try_again)
  fi;
#endif

#ifdef PLACE
  goto holding;
asking: /* place.go: placeStep */
  atomic { lock_lua(me, home, TRY); say_lock(TRY); look_after(home); mine = r_token; if :: mine > 0 -> goto holding :: else fi }
  atomic { /* takePlace */
    !dead[home];
    placed = 1; place_until = now + KEEP;
    if :: patience = now :: patience = now + 1 :: patience = NEVER fi; /* from when on it asks no more */
    line[home] ! me; wstate[me] = WAITING;
    if :: ME_FIRST -> goto look :: else -> sleeps(me, 1); goto wait_turn fi
  }
keeping: /* its place has the lock, until its client asks again or its time is over */
  if
  :: atomic { /* takeOver */
       now < place_until ->
       no_place(); take_lua(mine, me); printf("%d  locker %d takes what its place has, %d: %d\n", now, me, mine, r_freed);
       if
       :: r_freed -> WITNESSED(SEEN_PLACE_TAKEN); goto holding
       :: else -> WITNESSED(SEEN_PLACE_LOST); lost_in_time(); mine = 0; goto again
       fi
     }
  :: atomic { now >= place_until && !OVERSTAYS -> WITNESSED(SEEN_PLACE_OVER); no_place(); goto releasing }
#ifdef URGENT
  :: atomic { now < place_until && now < END -> until = now + 1 }; atomic { now >= until; until = 0; goto keeping }
#endif
  fi;
again: /* it asks as if it had had no place, by another request */
  atomic { named[me] == 0 -> reqs[me] = 1 - reqs[me]; goto asking };
#endif

holding:
#ifdef MAX
  if :: taken == 0 -> taken = now :: else fi;
  if
  :: atomic { now >= taken + MAX && !MAX_IS_RENEWED -> /* held/renew.go: its client is told, and then the lock is released */
       WITNESSED(SEEN_AT_MAX); taken = 0; owner = NOBODY;
#ifndef BREAK_MAX_RELEASES_FIRST
       lease[me] = 0;
#endif
       goto releasing }
  :: atomic { (now < taken + MAX || MAX_IS_RENEWED) && renewed_at != now -> renewed_at = now; relock_lua(mine, me, TIMEOUT); goto holding }
  :: atomic { (now < taken + MAX || MAX_IS_RENEWED) && now < END -> until = now + 1 }; atomic { now >= until; until = 0; goto holding } /* it hangs */
  :: atomic { now < taken + MAX -> taken = 0; goto releasing }
  fi;
#endif
  if
  :: true
#ifdef RELOCKS
  :: atomic { !relocked -> relock_lua(mine, me, RELOCKS); printf("%d  locker %d: RELOCK %d %d\n", now, me, mine, r_freed); relocked = 1; goto holding }
#endif
#ifdef OWNERS /* its connection has broken with its proxy; it asks the other, by the same name */
  :: atomic { dead[home] && PROXIES > 1 -> home = 1 - home; goto try }
#endif
#ifdef FENCES
  :: goto fence
#endif
#ifdef ONCES
  :: goto storing
#endif
#ifdef SAME_OWNER
  :: atomic { lease[me] = 0; goto disconnected }
#endif
#ifdef HOLDERS_CRASH
  :: goto crashed
#endif
  OR_SLEEP(holding)
  fi;

releasing:
  atomic {
    !OWES_LATE(me) || owner != me; relocked = 0;
    if :: dead[home] && PROXIES > 1 -> home = 1 - home :: else fi;
    !dead[home]; begin_release(home, kind, next)
  }
  atomic { unlock_lua(mine, owner, home, kind, next); say_unlock(); answer = r_token; freed = r_freed; self = r_self }
  atomic {
    !dead[home]; believes_no_more(owner);
    finish_release(home, kind, next, answer, freed, self, mine, orphan_of);
    owner = (mine > 0 -> NOBODY : me);
    if :: mine > 0 -> goto releasing :: else -> home = HOME(me); goto begin fi
  }

#ifdef ONCES
storing: /* DONE with a value */
  atomic { done_lua(mine, me, home); printf("%d  locker %d at proxy %d: DONE %d %d\n", now, me, home, mine, r_freed) }
  atomic { mine = 0; look_now(home); home = HOME(me); goto begin }
#endif
#ifdef FENCES
fence:
  atomic { watching[me] = WATCHED } /* WATCH */
  atomic {
    check_lua(mine);
    if :: r_freed :: else -> WITNESSED(SEEN_FENCED); watching[me] = UNWATCHED; goto releasing fi
  }
  atomic { /* EXEC */
#ifndef BREAK_FENCE_UNWATCHED
    if :: watching[me] == TOUCHED -> WITNESSED(SEEN_FENCE_AGAIN); goto fence :: else fi;
#endif
    printf("%d  locker %d: FENCE %d writes\n", now, me, mine);
    if :: mine < last_writer || value != written -> assert(fenced_writes) :: else fi;
    last_writer = mine; watching[me] = UNWATCHED; goto releasing
  }
#endif
#ifdef SAME_OWNER
disconnected: /* abandoned.go, whether or not its client has read the token */
  atomic { disconnected_lua(mine, me, home); printf("%d  locker %d has disconnected: %d\n", now, me, r_freed); mine = 0; goto begin }
#endif
#ifdef OWED
  goto crashed;
owed_for_ever:
end_owed:
  false;
#endif
#if defined(HOLDERS_CRASH) || defined(OWED)
crashed:
#endif
  skip
}
