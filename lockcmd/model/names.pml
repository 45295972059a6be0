/* Names that several files use. */

#define RELEASED 0
#define HELD     1
#define RESERVED 2
#define NOBODY   255
#define BY_LOCK  255 /* who wrote what is at the key */


#define IDLE    0
#define WAITING 1
#define OFFERED 2
#define GRANTED 3
#define LEFT    4

#define TRY   0
#define FIRST 1

#define NONE 0 /* what a release wishes for the waiters here */
#define NEXT 1
#define TURN 2
#define SELF 3
#define FREE 4
#define GAP  5


#define HOME(i) ((i) % PROXIES)

/* How long a locker keeps the lock unless it releases it. */
#ifdef SHORT_LOCKS
#define timeout_of(i) ((i) % 2 -> 1 : TIMEOUT)
#else
#define timeout_of(i) TIMEOUT
#endif

