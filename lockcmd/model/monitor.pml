/* What must always be true, and who has been told what. Nothing here decides what any program does.

A lock that LOCK gave is its holder's from the script that gave it until the script that released it, or until its timeout by the
upstream's clock: longer than a client can think so, which counts from before it asked and stops before it sends UNLOCK. A plain
client's is its own from the command that won it until its own timestamp is over, or its DEL. Overlaps are looked for when a lock is
given: between LOCK and LOCK, and between LOCK and plain clients. What plain clients do to one another is theirs.

What commands.md lets plain clients do to a lock is an excuse, one bit each. WITHOUT takes one away: then spin must find it. */

#define EX_SHORTER   1   /* within the settling time its timestamp was replaced, and not yet put right, and a plain client believed it */
#define EX_DEL_SETNX 2   /* within the settling time it was deleted, and not yet put right, and a plain client took it */
#define EX_DELETED   4   /* deleted while it did not settle: free */
#define EX_CHANGED   8   /* its timestamp was replaced while it did not settle: not its holder's any more */
#define EX_LATE      16  /* replaced while it settled, but after the last look: changed all the same when it had settled */
#define EX_PLAIN     32  /* a plain client's, deleted or replaced by another plain client */
#define EX_SLOW      64  /* a plain client judged what GETSET returned only once that was over, too */
#define EX_TWIN      128 /* the timestamp of another is the same text as the holder's own was */

#ifndef WITHOUT
#define WITHOUT 0
#endif
#define EXCUSES (255 - WITHOUT)

#define GONE_BY (EX_DELETED | EX_CHANGED | EX_LATE) /* the lock isn't its holder's any more, for nobody */

byte lease[AGENTS];   /* until when the agent may think that the lock is its own; 0: it doesn't */
byte harmed[AGENTS];  /* what others have done to that lock */
byte writer;          /* who wrote what is at the key: BY_LOCK, or a plain client */
bit late_write;       /* a plain client has written since the last look */
byte most;            /* the highest token given */

#define LIVE(a) (lease[a] > now)
#define IS_LOCKER(a) (a < LOCKERS)

/* The properties. Each is broken by an assertion that bears its name. */
bool exclusion = true, rising = true, own_release = true, settled = true, fair = true, reserved = true, fenced_order = true, prompt = true;

hidden byte a_, ex_;

inline acquired_by_lock(i, until, tok) {
  a_ = 0;
  do
  :: a_ < AGENTS ->
     if
     :: a_ != i && LIVE(a_) ->
        ex_ = harmed[a_] & EXCUSES & (IS_LOCKER(a_) -> GONE_BY : 255);
        if :: ex_ == 0 -> exclusion = false; assert(exclusion) :: else fi
     :: else
     fi;
     a_++
  :: else -> break
  od;
  if :: i != NOBODY && wstate[i] != LEFT -> lease[i] = until; harmed[i] = 0 :: else fi;
#ifdef CHECK_TOKENS
  if :: tok <= most -> rising = false; assert(rising) :: else fi;
  most = tok;
#endif
  count_bypass(i)
}

inline renewed(i, until) { if :: i != NOBODY && LIVE(i) -> lease[i] = until :: else fi }

/* A script of LOCK's is about to replace or delete the key on behalf of i: nobody else's lock may be there. */
inline overwritten_by_lock(i) {
  a_ = 0;
  do
  :: a_ < AGENTS ->
     if
     :: a_ != i && LIVE(a_) ->
        ex_ = harmed[a_] & EXCUSES & (IS_LOCKER(a_) -> GONE_BY : 255);
        if :: writer == a_ && value == written && !(now < settles) -> ex_ = ex_ | (EX_TWIN & EXCUSES) :: else fi;
        if :: ex_ == 0 -> own_release = false; assert(own_release) :: else fi
     :: else
     fi;
     a_++
  :: else -> break
  od
}

inline released_by_lock(i) {
  overwritten_by_lock(i);
  if :: i != NOBODY -> lease[i] = 0; harmed[i] = 0 :: else fi
}

/* A plain client wins the lock until `until`, by a command that is about to write. found is what excuses it. */
inline acquired_by_plain(p, until, found) {
  a_ = 0; harmed[p] = 0;
  do
  :: a_ < LOCKERS ->
     if
     :: LIVE(a_) && until > now ->
        ex_ = (harmed[a_] & (found)) | (EX_SLOW & (found));
        if :: (ex_ & EXCUSES) == 0 -> exclusion = false; assert(exclusion) :: else fi;
        harmed[p] = harmed[p] | (ex_ & (EX_SHORTER | EX_DEL_SETNX | EX_SLOW)) /* its own lock is none to others */
     :: else
     fi;
     a_++
  :: else -> break
  od;
  lease[p] = until
}

#define BY_SETNX  (GONE_BY | EX_DEL_SETNX)
#define BY_GETSET (GONE_BY | EX_DEL_SETNX | EX_SHORTER)
#define BY_CLOCK  (BY_GETSET | EX_SLOW)

/* Plain client p replaces the timestamp, or deletes it: whose lock is harmed, and how. */
inline harms(p, while_settling, otherwise) {
  a_ = 0; late_write = 1;
  do
  :: a_ < AGENTS ->
     if
     :: a_ != p && LIVE(a_) && !IS_LOCKER(a_) -> harmed[a_] = harmed[a_] | EX_PLAIN
     :: a_ != p && LIVE(a_) && IS_LOCKER(a_) ->
        if
        :: now < settles && now < expires && state == HELD && connection == a_ -> harmed[a_] = harmed[a_] | while_settling
        :: else -> harmed[a_] = harmed[a_] | otherwise
        fi
     :: else
     fi;
     a_++
  :: else -> break
  od
}

inline put_right() {
  harmed[connection] = harmed[connection] & (255 - (EX_SHORTER | EX_DEL_SETNX));
  late_write = 0
}

/* A reservation is taken. */
inline taken_from_reservation(p) {
  if :: held && state == RESERVED && connection != p -> reserved = false; assert(reserved) :: else fi
}

/* The clock has moved on. */
inline time_passed() {
  if
  :: token > 0 && now == settles && state == HELD && now < expires && value != written ->
     if :: late_write || no_looks -> skip :: else -> settled = false; assert(settled) fi;
     if :: LIVE(connection) -> harmed[connection] = harmed[connection] | EX_LATE :: else fi
  :: token > 0 && now == settles && state == HELD && value == written -> put_right() /* by being equal */
  :: else
  fi;
  a_ = 0;
  do
  :: a_ < AGENTS -> if :: lease[a_] > 0 && !LIVE(a_) -> lease[a_] = 0; harmed[a_] = 0 :: else fi; a_++
  :: else -> break
  od
}
