/* wait.c: events, semaphores, fast mutexes, run-down protection, time. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>

static pthread_mutex_t Lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t Changed;

/* 100 ns between 1601, when Windows' clock begins, and 1970. */
#define EPOCH 116444736000000000LL
#define PER_SECOND 10000000LL

__attribute__((constructor)) static VOID PrepareCondition(VOID)
{
    pthread_condattr_t Attributes;

    pthread_condattr_init(&Attributes);
    pthread_condattr_setclock(&Attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&Changed, &Attributes);
    pthread_condattr_destroy(&Attributes);
}

VOID DispatcherLock(VOID)
{
    pthread_mutex_lock(&Lock);
}

VOID DispatcherUnlock(VOID)
{
    pthread_mutex_unlock(&Lock);
}

VOID DispatcherSignal(VOID)
{
    pthread_cond_broadcast(&Changed);
}

BOOLEAN DispatcherWait(CONST struct timespec *Deadline)
{
    if (Deadline == NULL) {
        pthread_cond_wait(&Changed, &Lock);
        return TRUE;
    }
    return pthread_cond_timedwait(&Changed, &Lock, Deadline) != ETIMEDOUT;
}

static LONGLONG Now(clockid_t Clock)
{
    struct timespec Time;

    clock_gettime(Clock, &Time);
    return Time.tv_sec * PER_SECOND + Time.tv_nsec / 100;
}

/* A timeout of Windows as a time of the monotonic clock. */
static struct timespec DeadlineOf(LONGLONG Timeout)
{
    LONGLONG Left = Timeout <= 0 ? -Timeout : Timeout - EPOCH - Now(CLOCK_REALTIME);
    LONGLONG At = Now(CLOCK_MONOTONIC) + max(Left, 0);

    return (struct timespec){ .tv_sec = At / PER_SECOND, .tv_nsec = At % PER_SECOND * 100 };
}

VOID KeInitializeEvent(PRKEVENT Event, EVENT_TYPE Type, BOOLEAN State)
{
    Event->Header.Kind = Type == NotificationEvent ? KIND_NOTIFICATION : KIND_SYNCHRONIZATION;
    Event->Header.SignalState = State != FALSE;
}

/* Sets an event's state, and returns the one before. */
static LONG SetState(PRKEVENT Event, LONG State)
{
    LONG Before;

    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE(
        Event->Header.Kind == KIND_NOTIFICATION || Event->Header.Kind == KIND_SYNCHRONIZATION,
        "meets an event that was not initialized");
    DispatcherLock();
    Before = Event->Header.SignalState;
    Event->Header.SignalState = State;
    DispatcherSignal();
    DispatcherUnlock();
    return Before;
}

LONG KeSetEvent(PRKEVENT Event, KPRIORITY Increment, BOOLEAN Wait)
{
    UNREFERENCED_PARAMETER(Increment);
    REQUIRE(!Wait, "is not followed by a wait here: Wait is FALSE");
    return SetState(Event, 1);
}

VOID KeClearEvent(PRKEVENT Event)
{
    SetState(Event, 0);
}

LONG KeResetEvent(PRKEVENT Event)
{
    return SetState(Event, 0);
}

LONG KeReadStateEvent(PRKEVENT Event)
{
    LONG State;

    DispatcherLock();
    State = Event->Header.SignalState;
    DispatcherUnlock();
    return State;
}

VOID KeInitializeSemaphore(PRKSEMAPHORE Semaphore, LONG Count, LONG Limit)
{
    REQUIRE(0 <= Count && Count <= Limit, "has a count beyond its limit");
    Semaphore->Header.Kind = KIND_SEMAPHORE;
    Semaphore->Header.SignalState = Count;
    Semaphore->Limit = Limit;
}

LONG KeReleaseSemaphore(PRKSEMAPHORE Semaphore, KPRIORITY Increment, LONG Adjustment, BOOLEAN Wait)
{
    LONG Before;

    UNREFERENCED_PARAMETER(Increment);
    UNREFERENCED_PARAMETER(Wait);
    REQUIRE_IRQL(DISPATCH_LEVEL);
    REQUIRE(Semaphore->Header.Kind == KIND_SEMAPHORE, "meets a semaphore that was not initialized");
    DispatcherLock();
    Before = Semaphore->Header.SignalState;
    REQUIRE(Adjustment <= Semaphore->Limit - Before, "exceeds the limit");
    Semaphore->Header.SignalState += Adjustment;
    DispatcherSignal();
    DispatcherUnlock();
    return Before;
}

/* Takes what a waiter of the object takes, if there is something; with the lock. */
static BOOLEAN Take(DISPATCHER_HEADER *Header)
{
    if (Header->SignalState <= 0) {
        return FALSE;
    }
    if (Header->Kind == KIND_SYNCHRONIZATION || Header->Kind == KIND_SEMAPHORE) {
        Header->SignalState--;
    }
    return TRUE;
}

NTSTATUS KeWaitForSingleObject(
    PVOID Object,
    KWAIT_REASON WaitReason,
    KPROCESSOR_MODE WaitMode,
    BOOLEAN Alertable,
    PLARGE_INTEGER Timeout)
{
    DISPATCHER_HEADER *Header = Object;
    struct timespec Deadline = { 0 };
    BOOLEAN IsTaken, IsInTime = TRUE;

    UNREFERENCED_PARAMETER(WaitReason);
    UNREFERENCED_PARAMETER(WaitMode);
    UNREFERENCED_PARAMETER(Alertable);
    if (Timeout == NULL || Timeout->QuadPart != 0) {
        REQUIRE(KeGetCurrentIrql() <= APC_LEVEL, "waits at DISPATCH_LEVEL");
    }
    REQUIRE(
        KIND_NOTIFICATION <= Header->Kind && Header->Kind <= KIND_THREAD,
        "waits for an object that was not initialized");
    if (Timeout != NULL) {
        Deadline = DeadlineOf(Timeout->QuadPart);
    }
    DispatcherLock();
    while (!(IsTaken = Take(Header)) && IsInTime) {
        IsInTime = DispatcherWait(Timeout == NULL ? NULL : &Deadline);
    }
    DispatcherUnlock();
    return IsTaken ? STATUS_SUCCESS : STATUS_TIMEOUT;
}

NTSTATUS KeDelayExecutionThread(KPROCESSOR_MODE WaitMode, BOOLEAN Alertable, PLARGE_INTEGER Interval)
{
    struct timespec Deadline = DeadlineOf(Interval->QuadPart);

    UNREFERENCED_PARAMETER(WaitMode);
    UNREFERENCED_PARAMETER(Alertable);
    REQUIRE_IRQL(APC_LEVEL);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &Deadline, NULL) == EINTR) {
    }
    return STATUS_SUCCESS;
}

LARGE_INTEGER KeQueryPerformanceCounter(PLARGE_INTEGER PerformanceFrequency)
{
    LARGE_INTEGER Counter = { .QuadPart = Now(CLOCK_MONOTONIC) };

    if (PerformanceFrequency != NULL) {
        PerformanceFrequency->QuadPart = PER_SECOND;
    }
    return Counter;
}

VOID KeQuerySystemTime(PLARGE_INTEGER CurrentTime)
{
    CurrentTime->QuadPart = Now(CLOCK_REALTIME) + EPOCH;
}

VOID ExInitializeFastMutex(PFAST_MUTEX FastMutex)
{
    KeInitializeEvent(&FastMutex->Event, SynchronizationEvent, TRUE);
}

VOID ExAcquireFastMutex(PFAST_MUTEX FastMutex)
{
    KIRQL OldIrql;

    REQUIRE_IRQL(APC_LEVEL);
    KeWaitForSingleObject(&FastMutex->Event, Executive, KernelMode, FALSE, NULL);
    KeRaiseIrql(APC_LEVEL, &OldIrql);
    FastMutex->OldIrql = OldIrql;
}

VOID ExReleaseFastMutex(PFAST_MUTEX FastMutex)
{
    KIRQL OldIrql = FastMutex->OldIrql;

    REQUIRE(KeGetCurrentIrql() == APC_LEVEL, "is for APC_LEVEL");
    REQUIRE(KeSetEvent(&FastMutex->Event, IO_NO_INCREMENT, FALSE) == 0, "releases a mutex that is free");
    KeLowerIrql(OldIrql);
}

VOID ExInitializeRundownProtection(PEX_RUNDOWN_REF RunRef)
{
    RunRef->Count = 0;
}

VOID ExReInitializeRundownProtection(PEX_RUNDOWN_REF RunRef)
{
    REQUIRE(RunRef->Count == 1, "is for protection that has run down");
    RunRef->Count = 0;
}

BOOLEAN ExAcquireRundownProtectionEx(PEX_RUNDOWN_REF RunRef, ULONG Count)
{
    BOOLEAN IsAcquired;

    REQUIRE_IRQL(DISPATCH_LEVEL);
    DispatcherLock();
    IsAcquired = (RunRef->Count & 1) == 0;
    RunRef->Count += IsAcquired ? 2 * (ULONG_PTR)Count : 0;
    DispatcherUnlock();
    return IsAcquired;
}

VOID ExReleaseRundownProtectionEx(PEX_RUNDOWN_REF RunRef, ULONG Count)
{
    DispatcherLock();
    REQUIRE(RunRef->Count >= 2 * (ULONG_PTR)Count, "releases what nobody has acquired");
    RunRef->Count -= 2 * (ULONG_PTR)Count;
    DispatcherSignal();
    DispatcherUnlock();
}

VOID ExWaitForRundownProtectionRelease(PEX_RUNDOWN_REF RunRef)
{
    REQUIRE_IRQL(APC_LEVEL);
    DispatcherLock();
    RunRef->Count |= 1;
    while (RunRef->Count != 1) {
        DispatcherWait(NULL);
    }
    DispatcherUnlock();
}

VOID ExRundownCompleted(PEX_RUNDOWN_REF RunRef)
{
    RunRef->Count = 1;
}
