/* A client that LOCKs, alone or to share, and what its proxy does for it: as locker.pml, with offers to several waiters (offers.go). */

byte orphan[LOCKERS]; /* the token that a locker was given when it had left: its proxy releases it */
hidden byte o_, n_, w_;
hidden byte stop_;

inline say_lock(how_) {
  printf("%d  locker %d at proxy %d: LOCK (%e) %d, %d given; shared %d, expires %d\n", now, me, home, how_, r_token, r_given, state == SHARED, expires)
}
inline say_unlock(i) {
  printf("%d  locker %d at proxy %d: UNLOCK %d (%e) %d; %d given from %d on\n", now, i, home, mine, kind, r_freed, r_given, r_token)
}

#ifdef BREAK_ORDER
#define ME_FIRST (line[home] ?? [eval(me)])
#else
#define ME_FIRST (line[home] ? [eval(me)])
#endif
#define MY_STEP (wstate[me] != GRANTED && ME_FIRST && !dead[home])

#ifdef URGENT
#define OR_SLEEP(then) :: atomic { now < END -> until = now + 1 }; atomic { now >= until; until = 0; goto then }
#else
#define OR_SLEEP(then)
#endif

/* queue/queue.go: offerShared. Goes once round the line, whose first waiter is not offered the lock here. after is the first behind
those that are, + 1. */
inline offer_shared(p) {
  o_ = 0; n_ = 0; stop_ = 0; others = 0; after = 0;
  do
  :: o_ < len(line[p]) ->
     line[p] ? w_; line[p] ! w_;
     if
     :: o_ == 0 -> stop_ = !SHARES(w_)
#ifdef BREAK_OFFERS_PAST_WRITERS
     :: o_ > 0 && !stop_ && SHARES(w_) && wstate[w_] == WAITING ->
#else
     :: o_ > 0 && (stop_ || !SHARES(w_) || wstate[w_] != WAITING) -> if :: !stop_ -> after = w_ + 1 :: else fi; stop_ = 1
     :: o_ > 0 && !(stop_ || !SHARES(w_) || wstate[w_] != WAITING) ->
#endif
        wstate[w_] = OFFERED; named[w_]++;
        others = others | ((w_ + 1) << n_); n_ = n_ + 3
     :: else
     fi;
     o_++
  :: else -> break
  od
}

/* offers.go: endOffers. The lock was given to the first n of them, with tokens from t on. */
inline end_offers(p, n, t) {
  n_ = n; o_ = t;
  do
  :: others == 0 -> break
  :: others > 0 ->
     w_ = FIRST_OF(others); others = REST_OF(others);
     named[w_]--;
     if
     :: wstate[w_] == OFFERED && n_ == 0 -> wstate[w_] = WAITING; if :: line[p] ? [eval(w_)] -> wake_first(p) :: else fi
     :: wstate[w_] == OFFERED && n_ > 0 -> grant(w_, p, o_)
     :: wstate[w_] != OFFERED && n_ > 0 && wtoken[w_] != o_ && !dead[p] -> /* it has left, or its look has got the lock before */
        WITNESSED(SEEN_LEFT);
#ifndef BREAK_KEEPS_WHAT_LEFT
        orphan[w_] = o_; named[w_]++
#endif
     :: else
     fi;
     if :: n_ > 0 -> n_--; o_ = TOKEN_AFTER(o_) :: else fi
  od
}

/* unlock.go: release of what token `mine` of locker i holds, in three steps. */
inline releases(i) {
  atomic { /* queue/release.go: offer */
    !dead[home]; begins_release(home);
    if
    :: len(line[home]) == 0 -> kind = NONE
    :: else ->
       line[home] ? <first_>;
       if
       :: wstate[first_] != WAITING -> kind = SELF
       :: wstate[first_] == WAITING ->
          kind = (turn[home] == 0 -> FAIR : NEXT);
          offer_shared(home);
          wstate[first_] = OFFERED; named[first_]++;
          others = AHEAD(first_, others)
       fi
    fi
  }
  atomic { unlock_lua(mine, i, home, kind, others, after); say_unlock(i); answer = r_token; count = r_given; freed = r_freed; self = r_self }
  atomic { /* endHandOver */
    !dead[home]; ends_release(home);
    mine = 0;
    w_ = FIRST_OF(others);
    shares = others > 0 && SHARES(w_);
    end_offers(home, count, answer);
#ifndef BREAK_NO_LOOK_AFTER_GRANT
    if :: answer > 0 && shares -> look_now(home) :: else fi;
#endif
    if :: freed && answer == 0 && (kind == NEXT || kind == FAIR) -> yielded(home, RESERVATION) :: else fi;
#ifndef BREAK_NO_LOOK_AFTER_RELEASE
    if :: self || kind == NONE -> look_now(home) :: else fi;
#endif
    answer = 0; kind = NONE; freed = 0; self = 0; count = 0; shares = 0; after = 0
  }
}

proctype Locker(byte me) {
  byte home = HOME(me), rounds = 0, mine = 0, answer = 0, until = 0, patience = 0, count = 0, after = 0;
  short others = 0;
  mtype kind = NONE;
  bit freed = 0, self = 0, shares = 0;
#ifdef UPGRADES
  bit upgraded = 0; /* it has asked to be the only holder */
#endif

begin:
  if
  :: atomic {
       named[me] == 0 && now < END && !dead[home] && rounds < ROUNDS;
#ifndef ENDLESS
       rounds++; reqs[me] = 1 - reqs[me];
#endif
       wtoken[me] = 0;
#ifdef UPGRADES
       alone[me] = 0; upgraded = 0
#endif
     }
  OR_SLEEP(begin)
  fi;
  atomic { /* wait.go: wait */
    line[home] ! me; wstate[me] = WAITING;
#ifdef GIVES_UP
    if :: patience = now :: patience = now + GIVES_UP :: patience = NEVER fi;
#endif
    if :: ME_FIRST -> offer_shared(home); goto look :: else -> sleeps(me, 1); goto wait_turn fi
  }
look:
  atomic {
    lock_lua(me, others, after, home, FIRST); say_lock(FIRST);
    answer = r_token; count = r_given; shares = r_shared;
    until = (answer > 0 -> now + OFFER_PATIENCE : r_until)
  }
  atomic { /* poll.go: poll and endShared; wait.go: awaitOffer */
    !dead[home] && (answer == 0 || wstate[me] != OFFERED || now >= until);
    if :: len(line[home]) > 0 -> held_shared[home] = shares :: else fi;
    if
    :: wstate[me] == GRANTED -> WITNESSED(SEEN_LOOK_GRANTED); if :: answer > wtoken[me] -> wtoken[me] = answer :: else fi
    :: wstate[me] != GRANTED && answer == 0 -> until = until - now; arm(me, until); sleeps(me, 1)
    :: wstate[me] != GRANTED && answer > 0 -> turn[home] = 0; grant(me, home, answer)
    fi;
    count = (count > 0 -> count - 1 : 0);
    end_offers(home, count, TOKEN_AFTER(answer));
#ifndef BREAK_NO_LOOK_AFTER_GRANT
    if :: answer > 0 && SHARES(me) -> look_now(home) :: else fi;
#endif
    answer = 0; until = 0; count = 0; shares = 0; after = 0
  }
wait_turn:
  do
  :: atomic { wstate[me] == GRANTED -> break }
  :: atomic { MY_STEP && (wlook[me] || LOOKS_BY_ITSELF(me)) -> wlook[me] = 0; sleeps(me, 0); offer_shared(home); goto look }
#ifdef GIVES_UP
  :: atomic { /* wait.go: endWait */
       (wstate[me] == WAITING || wstate[me] == OFFERED) && now >= patience && !dead[home] ->
       printf("%d  locker %d leaves the line\n", now, me);
#ifdef BREAK_LEAVES_SILENTLY
       if :: wlook[me] && len(line[home]) == 1 -> gives_back(home) :: else fi;
#else
       if :: len(line[home]) == 1 -> gives_back(home) :: else fi;
#endif
       wstate[me] = LEFT; leave(me, home); lease[me] = 0; patience = 0; goto begin
     }
#endif
  od;
  atomic {
    wstate[me] = IDLE; mine = wtoken[me]; patience = 0;
#ifdef GIVES_UP
    if :: goto releasing /* its client has gone just now */ :: true fi
#endif
  }

holding:
  if
  :: true
#ifdef HOLDERS_CRASH
  :: goto crashed
#endif
#ifdef UPGRADES
  :: atomic { MAY_UPGRADE(me) && !upgraded && !dead[home] -> upgraded = 1; goto upgrading }
#endif
  OR_SLEEP(holding)
  fi;

releasing:
  atomic { if :: dead[home] && PROXIES > 1 -> home = 1 - home :: else fi };
  releases(me);
  atomic { home = HOME(me); goto begin }
#ifdef UPGRADES
upgrading: /* relock.go: beginExclude. Where no time passes it looks when it can be the only one. */
  if
  :: atomic {
       !dead[home] -> exclude_lua(mine, me, 1);
       printf("%d  locker %d at proxy %d: RELOCK %d EXCLUSIVE WAIT: %d, token %d\n", now, me, home, mine, r_up, r_token);
       if
       :: r_up == SCRIPT_SHARED -> until = now + LOOK
       :: r_up == SCRIPT_ALONE -> mine = r_token; goto holding
       :: else -> goto holding
       fi
     }
  :: atomic { dead[home] -> goto releasing }
  fi;
  if
#ifdef ENDLESS
  :: atomic { !OTHERS_HOLD(me) -> until = 0; goto upgrading }
#else
  :: atomic { now >= until || dead[home] -> until = 0; goto upgrading }
#endif
#ifndef PATIENT
  :: atomic { /* its time is over */
       !dead[home] -> until = 0; exclude_lua(mine, me, 0);
       printf("%d  locker %d at proxy %d: RELOCK %d EXCLUSIVE: %d, token %d\n", now, me, home, mine, r_up, r_token);
       if :: r_up == SCRIPT_ALONE -> mine = r_token :: else fi;
       goto holding
     }
#endif
  fi
#endif
#ifdef HOLDERS_CRASH
crashed:
#endif
  skip
}

#ifdef ABANDONS
/* abandoned.go: what was given to a waiter who has left is released. */
proctype Abandoned(byte home) {
  byte i = 0, mine = 0, answer = 0, count = 0, after = 0;
  short others = 0;
  mtype kind = NONE;
  bit freed = 0, self = 0, shares = 0;
end:
  do
  :: atomic {
       !dead[home] && (
#if LOCKERS > 3
       HOME(3) == home && orphan[3] > 0 ||
#endif
#if LOCKERS > 2
       HOME(2) == home && orphan[2] > 0 ||
#endif
       HOME(1) == home && orphan[1] > 0 || HOME(0) == home && orphan[0] > 0);
       i = 0;
       do :: HOME(i) == home && orphan[i] > 0 -> break :: else -> i++ od;
       mine = orphan[i]
     }
     releases(i);
     atomic { orphan[i] = 0; named[i]--; i = 0 }
  od
}
#endif
