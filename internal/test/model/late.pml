/* A question of the queue that is not answered in time, where SILENT is defined, which says how many there are in a run: own.go, and AnswerBy,
PollStopped and SettleLate of queue/poll.go. Its waiter asks again by another connection. One is late at a time. */

#ifdef SILENT
/* take.lua: ends */
#ifdef BREAK_NO_END
#define IN_TIME true
#elif defined(BREAK_ENDS_LATE)
#define IN_TIME (now <= late_until)
#else
#define IN_TIME (now < late_until)
#endif

inline ask_late(w, own_) {
  printf("%d  locker %d asks, and is not answered in time\n", now, w);
  silences++; late = SENT; late_of = w; late_req = reqs[w]; late_own = own_; late_until = now + BOUND; late_token = 0; late_has = 0; late_open = 1
}

/* Wait.End: what w's client is told does not change any more. */
inline wait_over(w, won) {
  if
  :: late_open && late_of == w && late_req == reqs[w] ->
     late_open = 0; late_has = (won -> wtoken[w] : 0);
#ifndef BREAK_RELEASES_NOTHING_UNKNOWN
     if :: late_unknown && !won -> late_releases = 2 :: else fi;
#endif
     late_unknown = 0
  :: else
  fi
}

/* Waiter.settle: the lease that w was given has ended, and its poll has taken another. */
inline given_again(w, t) { if :: t > wtoken[w] -> wtoken[w] = t :: else fi }

/* An UNLOCK that has done nothing ends what its client believes, too. */
inline believes_no_more(w) { if :: w != NOBODY -> lease[w] = 0 :: else fi }

/* SettleLate, with an answer. */
inline settle_late(w, p) {
  if
  :: late_token == 0
  :: late_token > 0 && late_open && (wstate[w] == WAITING || wstate[w] == OFFERED) ->
     WITNESSED(SEEN_LATE_GRANT); turn[p] = 0; grant(w, p, late_token)
  :: late_token > 0 && late_open && wstate[w] == GRANTED -> given_again(w, late_token)
#ifdef BREAK_LATE_ANSWER_COUNTS
  :: late_token > 0 && late_open && wstate[w] == LEFT -> wstate[w] = GRANTED; wtoken[w] = late_token
#else
  :: late_token > 0 && late_open && wstate[w] == LEFT -> late_frees = late_token
#endif
  :: late_token > 0 && !late_open && late_token <= late_has
  :: late_token > 0 && !late_open && late_token > late_has -> WITNESSED(SEEN_LATE_FREED); late_frees = late_token
  fi;
  late_token = 0
}

/* SettleLate, without one. */
inline lost() {
  late_token = 0;
  if
  :: !late_open && late_has == 0 -> late_releases = 2
#ifndef BREAK_LOST_BEFORE_IT_IS_TOLD
  :: late_open -> late_unknown = 1
#endif
  :: else
  fi
}

active proctype Late() {
  byte p = 0, next = NOBODY, left_to = NOBODY, answer = 0;
  mtype kind = NONE;
  bit freed = 0, self = 0;
end:
  do
#ifdef URGENT
  :: atomic { late != NOTHING && !late_rests && now < END -> late_rests = 1 }
#endif
  :: atomic {
       (late == SENT || late == STRAY) && !late_rests ->
       p = HOME(late_of);
       if
       :: IN_TIME ->
          asks_late = 1; lock_lua(late_of, p, FIRST); asks_late = 0;
          printf("%d  locker %d at proxy %d: the late LOCK %d\n", now, late_of, p, r_token);
          late_token = (late == SENT -> r_token : 0); late = (late == SENT -> RAN : NOTHING)
       :: !IN_TIME -> late = NOTHING
       fi;
       p = 0
     }
  :: atomic { late == SENT && !late_rests -> printf("%d  the late connection is lost\n", now); late = (late_own -> STRAY : NOTHING); lost() }
  :: atomic { late == RAN && !late_rests -> printf("%d  the late answer is lost\n", now); late = NOTHING; lost() }
  :: atomic { late == RAN && !late_rests -> late = NOTHING; p = HOME(late_of); settle_late(late_of, p); p = 0; if :: late_frees > 0 -> goto freeing :: else fi }
  :: atomic { late_releases == 2 || late_releases == 1 && now >= late_until -> late_releases--; late_frees = BY_REQUEST; goto freeing }
  od;
freeing: /* abandoned.go */
  atomic { p = HOME(late_of); begin_release(p, kind, next) }
  atomic {
    unlock_lua(late_frees, NOBODY, p, kind, next); answer = r_token; freed = r_freed; self = r_self;
    printf("%d  proxy %d releases %d: %d\n", now, p, late_frees, r_freed);
    if :: late_frees == BY_REQUEST && freed -> WITNESSED(SEEN_FREED_BY_NAME) :: else fi
  }
  atomic {
    finish_release(p, kind, next, answer, freed, self, late_frees, left_to);
    p = 0; if :: late_frees > 0 -> goto freeing :: else -> goto end fi
  }
}
#else
#define OWES_LATE(w) false
#define MAY_BEGIN(w) true
inline wait_over(w, won) { skip }
inline given_again(w, t) { skip }
inline believes_no_more(w) { skip }
#endif
