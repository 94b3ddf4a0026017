/* internal.h: what the files of the stand-in share. */
#ifndef NDKSHIM_INTERNAL_H
#define NDKSHIM_INTERNAL_H

#include <ndkshim.h>
#include <pthread.h>
#include <time.h>

/* Ends the process where the calling function is for a lower IRQL. */
#define REQUIRE_IRQL(Level) \
    (KeGetCurrentIrql() > (Level) ? NdkShimFail(__func__, "is for IRQL <= " #Level) : (VOID)0)
#define REQUIRE(Condition, Rule) ((Condition) ? (VOID)0 : NdkShimFail(__func__, (Rule)))

/* Kinds of what a thread can wait for; none is 0, so that an object that was not made is noticed. */
enum { KIND_NOTIFICATION = 0x4E4B0001, KIND_SYNCHRONIZATION, KIND_SEMAPHORE, KIND_THREAD };

/* One lock and one condition for all waits: the stand-in is small, and its waits are few. */
VOID DispatcherLock(VOID);
VOID DispatcherUnlock(VOID);
/* The state of some object has changed; with the lock. */
VOID DispatcherSignal(VOID);
/* Waits until some state has changed, or the deadline is reached, and then returns false; with the lock. */
BOOLEAN DispatcherWait(CONST struct timespec *Deadline);

/* Zeroed memory of the stand-in itself. */
PVOID Allocate(SIZE_T Bytes);

/* Things that are not given back: each writes its lines and returns their number. */
ULONG PoolLeaks(VOID);
ULONG ThreadLeaks(VOID);
ULONG DriverLeaks(VOID);

/* Writes a line about Count things, if there are any, and returns Count. */
ULONG ReportLeak(PCSTR Thing, LONG Count);

#endif
