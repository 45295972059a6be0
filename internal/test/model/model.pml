/* The protocol of LOCK, and of the foreign clients next to it. main.go says how it is explored; configs.go says what is explored, with which -D. */

#include "names.pml"
#ifdef ALLS
#include "all.pml"
#else
#include "record.pml"
#ifdef CLIENT0
#include "shared.pml"
#include "sharing.pml"
#include "line.pml"
#include "sharer.pml"
#else
#include "upstream.pml"
#include "monitor.pml"
#include "line.pml"
#include "once.pml"
#include "late.pml"
#include "locker.pml"
#endif
#if PLAINS > 0
#include "plain.pml"
#endif
#include "world.pml"
#endif
