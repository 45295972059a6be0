/* The protocol of LOCK and of the plain clients beside it. README.md is the manual; configs.go says what is explored with which -D. */

#ifndef PROXIES
#define PROXIES 2
#endif
#ifndef LOCKERS
#define LOCKERS 2
#endif
#ifdef PLAIN2
#define PLAINS 2
#else
#ifdef PLAIN1
#define PLAINS 1
#else
#define PLAINS 0
#endif
#endif
#define AGENTS (LOCKERS + PLAINS) /* the lockers first */

/* In ticks, but for rounds. */
#define START 2
#ifndef END
#define END 7
#endif
#ifndef TIMEOUT
#define TIMEOUT 3
#endif
#ifndef PLAIN_TIMEOUT
#define PLAIN_TIMEOUT 2
#endif
#ifndef SETTLE
#define SETTLE 2
#endif
#ifndef RESERVATION
#define RESERVATION 1
#endif
#ifndef LOOK
#define LOOK 1
#endif
#ifndef FRESH
#define FRESH 3
#endif
#ifndef REFRESH
#define REFRESH 1
#endif
#ifndef RETENTION
#define RETENTION 3
#endif
#ifndef PER_TICK
#define PER_TICK 4
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef PLAIN_ROUNDS
#define PLAIN_ROUNDS 1
#endif
#ifndef OWNER_RETRIES
#define OWNER_RETRIES false
#endif

bit dead[PROXIES];
bit looked;   /* settle.lua has run since the clock has moved */
bit no_looks; /* nobody looks after a takeover: its proxy has crashed */

#include "names.pml"
#include "upstream.pml"
#include "monitor.pml"
#include "proxy.pml"
#if PLAINS > 0
#include "plain.pml"
#endif
#include "world.pml"
