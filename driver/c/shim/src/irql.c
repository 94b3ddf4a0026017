/* irql.c: interrupt request levels, spin locks, and the end of a process that breaks a rule. */
#define _GNU_SOURCE
#include "internal.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOT_KNOWN 0xFF

static _Thread_local KIRQL Current = NOT_KNOWN;

/*
 * The level of this thread. One that nobody has introduced is the provider's, which calls back at
 * DISPATCH_LEVEL; the main thread is known by its number.
 */
KIRQL KeGetCurrentIrql(VOID)
{
    if (Current == NOT_KNOWN) {
        Current = syscall(SYS_gettid) == getpid() ? PASSIVE_LEVEL : DISPATCH_LEVEL;
    }
    return Current;
}

VOID NdkShimAttachThread(VOID)
{
    Current = PASSIVE_LEVEL;
}

_Noreturn VOID NdkShimFail(PCSTR Function, PCSTR Rule)
{
    fprintf(stderr, "ndkshim: %s %s (IRQL %d)\n", Function, Rule, KeGetCurrentIrql());
    abort();
}

ULONG ReportLeak(PCSTR Thing, LONG Count)
{
    if (Count == 0) {
        return 0;
    }
    fprintf(stderr, "ndkshim: %d %s left\n", Count, Thing);
    return (ULONG)Count;
}

PVOID Allocate(SIZE_T Bytes)
{
    PVOID Memory = calloc(1, Bytes);
    REQUIRE(Memory != NULL, "finds no memory");
    return Memory;
}

/* Copies a format of Windows as one of C: a LONG has 32 bits, and 64 bits are I64 there. */
static VOID Translate(PCSTR From, PCHAR To, SIZE_T Room)
{
    SIZE_T Used = 0;
    BOOLEAN IsInside = FALSE;

    while (*From != '\0' && Used + 3 < Room) {
        if (*From == '%') {
            IsInside = !IsInside;
        } else if (IsInside && strncmp(From, "I64", 3) == 0) {
            To[Used++] = 'l';
            To[Used++] = 'l';
            From += 3;
            continue;
        } else if (IsInside && From[0] == 'l' && From[1] == 'l') {
            To[Used++] = *From++;
        } else if (IsInside && From[0] == 'l') {
            From++;
            continue;
        } else if (IsInside && strchr("0123456789.-+# *hz", *From) == NULL) {
            IsInside = FALSE;
        }
        To[Used++] = *From++;
    }
    To[Used] = '\0';
}

ULONG DbgPrint(PCSTR Format, ...)
{
    char Translated[512];
    va_list Arguments;

    Translate(Format, Translated, sizeof(Translated));
    va_start(Arguments, Format);
    vfprintf(stderr, Translated, Arguments);
    va_end(Arguments);
    return STATUS_SUCCESS;
}

VOID KeRaiseIrql(KIRQL NewIrql, PKIRQL OldIrql)
{
    REQUIRE(NewIrql >= KeGetCurrentIrql(), "lowers the IRQL");
    *OldIrql = Current;
    Current = NewIrql;
}

VOID KeLowerIrql(KIRQL NewIrql)
{
    REQUIRE(NewIrql <= KeGetCurrentIrql(), "raises the IRQL");
    Current = NewIrql;
}

/* A number of this thread that is not 0: the address of what only it has. */
static ULONG_PTR ThisThread(VOID)
{
    return (ULONG_PTR)&Current;
}

VOID KeInitializeSpinLock(PKSPIN_LOCK SpinLock)
{
    *SpinLock = 0;
}

VOID KeAcquireSpinLockAtDpcLevel(PKSPIN_LOCK SpinLock)
{
    ULONG_PTR Free = 0;

    REQUIRE(KeGetCurrentIrql() == DISPATCH_LEVEL, "is for DISPATCH_LEVEL");
    REQUIRE(__atomic_load_n(SpinLock, __ATOMIC_RELAXED) != ThisThread(), "waits for its own lock");
    while (!__atomic_compare_exchange_n(
        SpinLock, &Free, ThisThread(), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        Free = 0;
        sched_yield();
    }
}

VOID KeReleaseSpinLockFromDpcLevel(PKSPIN_LOCK SpinLock)
{
    REQUIRE(__atomic_load_n(SpinLock, __ATOMIC_RELAXED) == ThisThread(), "releases the lock of another");
    __atomic_store_n(SpinLock, 0, __ATOMIC_RELEASE);
}

VOID KeAcquireSpinLock(PKSPIN_LOCK SpinLock, PKIRQL OldIrql)
{
    KeRaiseIrql(DISPATCH_LEVEL, OldIrql);
    KeAcquireSpinLockAtDpcLevel(SpinLock);
}

VOID KeReleaseSpinLock(PKSPIN_LOCK SpinLock, KIRQL NewIrql)
{
    KeReleaseSpinLockFromDpcLevel(SpinLock);
    KeLowerIrql(NewIrql);
}

VOID KeAcquireInStackQueuedSpinLock(PKSPIN_LOCK SpinLock, PKLOCK_QUEUE_HANDLE LockHandle)
{
    LockHandle->Lock = SpinLock;
    KeAcquireSpinLock(SpinLock, &LockHandle->OldIrql);
}

VOID KeReleaseInStackQueuedSpinLock(PKLOCK_QUEUE_HANDLE LockHandle)
{
    KeReleaseSpinLock(LockHandle->Lock, LockHandle->OldIrql);
}
