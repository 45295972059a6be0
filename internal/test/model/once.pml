/* A value that is made once, where ONCES is defined: the lock is the claim to make it. once.go, claim.go, once.lua, done.lua.
A value is told from another by how often the key had been deleted when it was made. */

#ifdef ONCES
bit made;              /* the value is there */
byte made_in, deleted; /* after how many DELs it was made; how many there have been */
byte born[LOCKERS];    /* how many there had been when the locker asked: its client knows of them */

#define MADE 254 /* what once.lua answers if the value is there */

/* done.lua, for token tok of locker i at proxy p. */
inline done_lua(tok, i, p) {
  read_lua();
#ifdef BREAK_DONE_NO_COMPARE
  r_freed = held && state == HELD;
#else
  r_freed = held && state == HELD && token == tok;
#endif
  if
  :: r_freed ->
     if :: made -> assert(made_once) :: else fi;
     released_by_lock(i);
     made = 1; made_in = deleted;
#ifndef BREAK_DONE_TELLS_NOBODY
     but_ = p + 1; rivals(but_);
     if :: waiting1 > 0 && !dead[waiting1 - 1] -> entry = waiting1 - 1; publish(entry) :: else fi;
#endif
     waiting1 = 0; waiting2 = 0;
     value = 0; ttl = 0; writer = BY_LOCK;
     until_ = CARRIED; record(token, 0, 0, until_, RELEASED, 0, 0)
  :: else
  fi
}

/* Others delete the value. */
proctype Deletes() {
end:
  do
  :: atomic { made && deleted < ONCES -> made = 0; deleted++; printf("%d  DEL of the value\n", now) }
  od
}

/* Who was in the line when the value was read, a bit each. */
inline mark_line(p, mask) {
  mask = 0; a_ = 0;
  do
  :: a_ < LOCKERS -> if :: line[p] ?? [eval(a_)] -> mask = mask | (1 << a_) :: else fi; a_++
  :: else -> break
  od
}

/* queue/queue.go: answer. All of them are given it, and who has come since looks. */
inline serve(me_, p, mask, version_) {
  a_ = 0;
  do
  :: a_ < LOCKERS ->
     if
#ifdef BREAK_SERVES_LATECOMERS
     :: line[p] ?? [eval(a_)] ->
#else
     :: (mask & (1 << a_)) && line[p] ?? [eval(a_)] ->
#endif
        if :: version_ < born[a_] -> assert(fresh_value) :: else fi;
        if :: a_ != me_ -> WITNESSED(SEEN_SHARED_VALUE) :: else fi;
        if :: named[a_] > 0 -> WITNESSED(SEEN_SERVED_NAMED) :: else fi;
        wstate[a_] = LEFT; lease[a_] = 0; serving_ = a_; leave(serving_, p)
     :: else
     fi;
     a_++
  :: else -> break
  od;
  look_now(p);
  if :: len(line[p]) == 0 -> gives_back(p) :: else fi
}
hidden byte serving_;
#endif
