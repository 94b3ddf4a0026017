/*
 * consumer.h: an NDK consumer in the shape of a WDM driver.
 *
 * Nothing but host.c is of Linux.
 */
#ifndef CONSUMER_H
#define CONSUMER_H

#include <ntddk.h>
#include <wsk.h>
#include <ndkpi.h>
#include <wskndk.h>

#define CONSUMER_TAG ((ULONG)0x634B444E)
/* Bytes of a READ, of a WRITE, and of the region that they reach; it begins inside a page. */
#define DATA_BYTES (64 * 1024)
#define DATA_OFFSET 0x68
#define MESSAGE_BYTES 256
#define RECEIVES 4
#define QUEUE_DEPTH 16
#define PORT 7174

/* Ends a function that returns a status where Expression fails. */
#define TRY(Expression) \
    do { \
        NTSTATUS Tried = (Expression); \
        if (!NT_SUCCESS(Tried)) { \
            DbgPrint("%s: 0x%08X\n", #Expression, Tried); \
            return Tried; \
        } \
    } while (0)

/* A call that returned STATUS_PENDING, until its callback. */
typedef struct _CALL {
    KEVENT Done;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} CALL;

/* A buffer of pool that the adapter reaches by the privileged token. */
typedef struct _BUFFER {
    PUCHAR Pool;
    PUCHAR Start;
    ULONG Bytes;
    PMDL Mdl;
    NDK_LOGICAL_ADDRESS_MAPPING *Lam;
    ULONG FirstByteOffset;
} BUFFER;

/* A posted request, until its completion. */
typedef struct _WORK {
    KEVENT Done;
    NDK_RESULT_EX Result;
} WORK;

/* The offer of a region to the peer, as the first message has it. */
typedef struct _OFFER {
    UINT64 Address;
    UINT32 Token;
    UINT32 Bytes;
} OFFER;

/* One end of a connection, with everything that it needs. */
typedef struct _ENDPOINT {
    NDK_ADAPTER *Adapter;
    NDK_PD *Pd;
    NDK_CQ *ReceiveCq;
    NDK_CQ *InitiatorCq;
    NDK_QP *Qp;
    NDK_MR *Frmr;
    NDK_CONNECTOR *Connector;
    UINT32 PrivilegedToken;
    UINT32 RemoteToken;
    BUFFER Data;
    BUFFER Message;
    BUFFER ReceiveBuffers[RECEIVES];
    WORK Receives[RECEIVES];
    KEVENT Disconnected;
} ENDPOINT;

/* call.c: calls that pend, and closes. */
CALL *CallBegin(CALL *Call);
NTSTATUS CallEnd(CALL *Call, NTSTATUS Status);
VOID CallCreated(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object);
VOID CallRequested(PVOID Context, NTSTATUS Status);
VOID CloseObject(NDK_FN_CLOSE_OBJECT Close, NDK_OBJECT_HEADER *Object);
NTSTATUS WaitFor(PVOID Object);

/* The last arguments of a call that creates an object, and of one that does not. */
#define CREATION(Call) CallCreated, CallBegin(&(Call)), (PVOID)&(Call).Object
#define COMPLETION(Call) CallRequested, CallBegin(&(Call))

/* wsk.c: adapters. */
NTSTATUS AdaptersStart(VOID);
VOID AdaptersStop(VOID);
NTSTATUS AdapterOpen(NET_IFINDEX Interface, NDK_ADAPTER **Adapter);
VOID AdapterClose(NDK_ADAPTER *Adapter);

/* endpoint.c: the objects of one end. A failed open is followed by a close, too. */
NTSTATUS EndpointOpen(ENDPOINT *Endpoint, NET_IFINDEX Interface);
VOID EndpointClose(ENDPOINT *Endpoint);
VOID EndpointDisconnected(PVOID Context);

/* transfer.c: requests of one end; each waits for its completion. */
NTSTATUS Register(ENDPOINT *Endpoint, OFFER *Offer);
NTSTATUS Send(ENDPOINT *Endpoint, CONST VOID *Bytes, ULONG Length, UINT32 InvalidatedToken);
NTSTATUS Write(ENDPOINT *Endpoint, CONST OFFER *Offer);
NTSTATUS Read(ENDPOINT *Endpoint, CONST OFFER *Offer);
NTSTATUS PostReceives(ENDPOINT *Endpoint);
NTSTATUS WaitForReceive(ENDPOINT *Endpoint, ULONG Index, NDK_RESULT_EX *Result);
VOID ReceiveNotification(PVOID Context, NTSTATUS Status);
VOID InitiatorNotification(PVOID Context, NTSTATUS Status);

/* The driver's entry. */
DRIVER_INITIALIZE DriverEntry;

#endif
