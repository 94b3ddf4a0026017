/*
 * ndkpi.h: the Network Direct kernel provider interface, 2.1.
 *
 * Written by the test `headers` of the package ndk-c from driver/abi; edit headers/ndkpi.h.in.
 * Each function type has its page under
 * https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/, named nc-ndkpi-ndk_fn_*. Calls
 * and callbacks are at IRQL <= DISPATCH_LEVEL except where a comment says another.
 */
#ifndef NDKPI_H
#define NDKPI_H

#ifdef _WIN32
#include <ws2def.h>
#include <ws2ipdef.h>
#else
#include <ndkbase.h>
#endif
#include <ndkinfo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type of an object. */
typedef enum _NDK_OBJECT_TYPE {
    NdkObjectTypeUndefined = 0,
    NdkObjectTypeAdapter = 1,
    NdkObjectTypeQp = 2,
    NdkObjectTypeCq = 3,
    NdkObjectTypeMr = 4,
    NdkObjectTypeMw = 5,
    NdkObjectTypePd = 6,
    NdkObjectTypeSharedEndpoint = 7,
    NdkObjectTypeConnector = 8,
    NdkObjectTypeListener = 9,
    NdkObjectTypeSrq = 10,
    NdkObjectTypeMax = 11
} NDK_OBJECT_TYPE;

/* Belongs to the layer between provider and consumer while the object lives. */
typedef struct _NDK_OBJECT_HEADER_RESERVED_BLOCK {
    PVOID rf[4];
} NDK_OBJECT_HEADER_RESERVED_BLOCK;

/* The beginning of every object. */
typedef struct _NDK_OBJECT_HEADER {
    /* The version at which the provider runs this adapter. */
    NDK_VERSION Version;
    NDK_OBJECT_TYPE ObjectType;
    /* Zero at creation; others write it afterwards. */
    NDK_OBJECT_HEADER_RESERVED_BLOCK NdkReserved;
} NDK_OBJECT_HEADER;

typedef struct _NDK_ADAPTER NDK_ADAPTER;
typedef struct _NDK_QP NDK_QP;
typedef struct _NDK_CQ NDK_CQ;
typedef struct _NDK_MR NDK_MR;
typedef struct _NDK_MW NDK_MW;
typedef struct _NDK_PD NDK_PD;
typedef struct _NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT;
typedef struct _NDK_CONNECTOR NDK_CONNECTOR;
typedef struct _NDK_LISTENER NDK_LISTENER;
typedef struct _NDK_SRQ NDK_SRQ;

typedef PHYSICAL_ADDRESS NDK_LOGICAL_ADDRESS;

/* One scatter/gather element. */
typedef struct _NDK_SGE {
    union {
        PVOID VirtualAddress;
        NDK_LOGICAL_ADDRESS LogicalAddress;
    };
    ULONG Length;
    UINT32 MemoryRegionToken;
} NDK_SGE;

/* The operation of a completion. */
typedef enum _NDK_OPERATION_TYPE {
    NdkOperationTypeReceive = 0x0001,
    NdkOperationTypeReceiveAndInvalidate = 0x8001,
    NdkOperationTypeSend = 0x0002,
    NdkOperationTypeFastRegister = 0x0004,
    NdkOperationTypeBind = 0x0008,
    NdkOperationTypeInvalidate = 0x0010,
    NdkOperationTypeRead = 0x0020,
    NdkOperationTypeWrite = 0x0040
} NDK_OPERATION_TYPE;

/* A completion. */
typedef struct _NDK_RESULT {
    NTSTATUS Status;
    /* Meaningful for receives only. */
    ULONG BytesTransferred;
    PVOID QPContext;
    PVOID RequestContext;
} NDK_RESULT;

/* A completion that names its operation (1.2). */
typedef struct _NDK_RESULT_EX {
    NTSTATUS Status;
    /* Meaningful for receives only. */
    ULONG BytesTransferred;
    PVOID QPContext;
    PVOID RequestContext;
    NDK_OPERATION_TYPE Type;
    /* Padding before 2.1; 0 on success, and 0 = none given on failure. */
    ULONG ProviderErrorCode;
    /* The invalidated token of a ReceiveAndInvalidate. */
    ULONG_PTR TypeSpecificCompletionOutput;
} NDK_RESULT_EX;

/* Bus addresses of a locked buffer. The consumer allocates it with its pages behind it. */
typedef struct _NDK_LOGICAL_ADDRESS_MAPPING {
    /* The provider's own. */
    PVOID AdapterContext;
    ULONG AdapterPageCount;
    /* AdapterPageCount entries, each page-aligned. */
    NDK_LOGICAL_ADDRESS AdapterPageArray[1];
} NDK_LOGICAL_ADDRESS_MAPPING;

/* Where a queried extension puts its table. */
typedef struct _NDK_EXTENSION_INTERFACE {
    const void *Dispatch;
} NDK_EXTENSION_INTERFACE;

/* Flags of work requests. */
#define NDK_OP_FLAG_SILENT_SUCCESS 0x001
#define NDK_OP_FLAG_READ_FENCE 0x002
#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT 0x004
#define NDK_OP_FLAG_ALLOW_REMOTE_READ 0x008
#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE 0x010
/* Contains NDK_OP_FLAG_ALLOW_LOCAL_WRITE: test for all of its bits. */
#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE 0x030
#define NDK_OP_FLAG_INLINE 0x040
#define NDK_OP_FLAG_RDMA_READ_SINK 0x080
/* As in the header; the page of NdkRead prints the value of NDK_OP_FLAG_DEFER. */
#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 0x100
#define NDK_OP_FLAG_DEFER 0x200

/* Flags of NdkRegisterMr. */
#define NDK_MR_FLAG_ALLOW_LOCAL_READ 0
#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 1
#define NDK_MR_FLAG_ALLOW_REMOTE_READ 2
/* Contains NDK_MR_FLAG_ALLOW_LOCAL_WRITE: test for all of its bits. */
#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 5
#define NDK_MR_FLAG_RDMA_READ_SINK 8

/* The completions that NdkArmCq waits for. */
#define NDK_CQ_NOTIFY_ERRORS 0
#define NDK_CQ_NOTIFY_ANY 1
#define NDK_CQ_NOTIFY_SOLICITED 2

/* Ends a close that returned STATUS_PENDING: the last callback of the object. */
typedef void (*NDK_FN_CLOSE_COMPLETION)(PVOID Context);

/* Ends a request that returned STATUS_PENDING. */
typedef void (*NDK_FN_REQUEST_COMPLETION)(PVOID Context, NTSTATUS Status);

/* Ends a create that returned STATUS_PENDING; the object is valid if Status is success. */
typedef void (*NDK_FN_CREATE_COMPLETION)(
    PVOID Context,
    NTSTATUS Status,
    NDK_OBJECT_HEADER *pNdkObject);

/* At most once per arm, never two at a time for one CQ. */
typedef void (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(PVOID CqNotificationContext, NTSTATUS CqStatus);

/* The one-shot low watermark of an SRQ. */
typedef void (*NDK_FN_SRQ_NOTIFICATION_CALLBACK)(PVOID SrqNotificationContext, NTSTATUS SrqStatus);

/* An incoming connection; the connector is the consumer's from here on. */
typedef void (*NDK_FN_CONNECT_EVENT_CALLBACK)(
    PVOID ConnectEventContext,
    NDK_CONNECTOR *pNdkConnector);

/* The peer disconnected or the connection broke; once per connection. */
typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(PVOID DisconnectEventContext);

/* As NDK_FN_DISCONNECT_EVENT_CALLBACK, with the provider's reason or 0 (2.1). */
typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK_EX)(
    PVOID DisconnectEventContext,
    ULONG ProviderDisconnectReason);

/* Closes an object: never fails. */
typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(
    NDK_OBJECT_HEADER *pNdkObject,
    NDK_FN_CLOSE_COMPLETION CloseCompletion,
    PVOID RequestContext);

/* Asks for an extension's table. */
typedef NTSTATUS (*NDK_FN_QUERY_EXTENSION_INTERFACE)(
    NDK_OBJECT_HEADER *pNdkObject,
    const GUID *ExtensionInterfaceID,
    NDK_VERSION ExtensionInterfaceVersion,
    NDK_EXTENSION_INTERFACE *pExtensionInterface);

/* PASSIVE_LEVEL. */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO)(
    NDK_ADAPTER *pNdkAdapter,
    NDK_ADAPTER_INFO *pInfo,
    ULONG *pBufferSize);

/* In the header, but in no table. PASSIVE_LEVEL. */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO_EX)(
    NDK_ADAPTER *pNdkAdapter,
    NDK_VERSION Version,
    NDK_ADAPTER_INFO *pInfo,
    ULONG *pBufferSize);

typedef NTSTATUS (*NDK_FN_CREATE_CQ)(
    NDK_ADAPTER *pNdkAdapter,
    ULONG CqDepth,
    NDK_FN_CQ_NOTIFICATION_CALLBACK CqNotification,
    PVOID CqNotificationContext,
    const GROUP_AFFINITY *Affinity,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_CQ **ppNdkCq);

typedef NTSTATUS (*NDK_FN_CREATE_PD)(
    NDK_ADAPTER *pNdkAdapter,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_PD **ppNdkPd);

/* For outgoing connections; incoming ones bring their own. */
typedef NTSTATUS (*NDK_FN_CREATE_CONNECTOR)(
    NDK_ADAPTER *pNdkAdapter,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_CONNECTOR **ppNdkConnector);

typedef NTSTATUS (*NDK_FN_CREATE_LISTENER)(
    NDK_ADAPTER *pNdkAdapter,
    NDK_FN_CONNECT_EVENT_CALLBACK ConnectEvent,
    PVOID ConnectEventContext,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_LISTENER **ppNdkListener);

typedef NTSTATUS (*NDK_FN_CREATE_SHARED_ENDPOINT)(
    NDK_ADAPTER *pNdkAdapter,
    const SOCKADDR *pAddress,
    ULONG AddressLength,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint);

/* Maps a locked buffer for the privileged token. */
typedef NTSTATUS (*NDK_FN_BUILD_LAM)(
    NDK_ADAPTER *pNdkAdapter,
    MDL *Mdl,
    SIZE_T Length,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext,
    NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM,
    ULONG *pLAMSize,
    ULONG *pFBO);

typedef void (*NDK_FN_RELEASE_LAM)(NDK_ADAPTER *pNdkAdapter, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

typedef NTSTATUS (*NDK_FN_CREATE_MR)(
    NDK_PD *pNdkPd,
    BOOLEAN FastRegister,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_MR **ppNdkMr);

typedef NTSTATUS (*NDK_FN_CREATE_MW)(
    NDK_PD *pNdkPd,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_MW **ppNdkMw);

typedef NTSTATUS (*NDK_FN_CREATE_SRQ)(
    NDK_PD *pNdkPd,
    ULONG SrqDepth,
    ULONG MaxReceiveRequestSge,
    ULONG NotifyThreshold,
    NDK_FN_SRQ_NOTIFICATION_CALLBACK SrqNotification,
    PVOID SrqNotificationContext,
    const GROUP_AFFINITY *Affinity,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_SRQ **ppNdkSrq);

typedef NTSTATUS (*NDK_FN_CREATE_QP)(
    NDK_PD *pNdkPd,
    NDK_CQ *pReceiveCq,
    NDK_CQ *pInitiatorCq,
    PVOID QPContext,
    ULONG ReceiveQueueDepth,
    ULONG InitiatorQueueDepth,
    ULONG MaxReceiveRequestSge,
    ULONG MaxInitiatorRequestSge,
    ULONG InlineDataSize,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_QP **ppNdkQp);

typedef NTSTATUS (*NDK_FN_CREATE_QP_WITH_SRQ)(
    NDK_PD *pNdkPd,
    NDK_CQ *pReceiveCq,
    NDK_CQ *pInitiatorCq,
    NDK_SRQ *pSrq,
    PVOID QPContext,
    ULONG InitiatorQueueDepth,
    ULONG MaxInitiatorRequestSge,
    ULONG InlineDataSize,
    NDK_FN_CREATE_COMPLETION CreateCompletion,
    PVOID RequestContext,
    NDK_QP **ppNdkQp);

typedef void (*NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN)(NDK_PD *pNdkPd, UINT32 *pToken);

typedef NTSTATUS (*NDK_FN_REGISTER_MR)(
    NDK_MR *pNdkMr,
    MDL *Mdl,
    SIZE_T Length,
    ULONG Flags,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_DEREGISTER_MR)(
    NDK_MR *pNdkMr,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_INITIALIZE_FAST_REGISTER_MR)(
    NDK_MR *pNdkMr,
    ULONG AdapterPageCount,
    BOOLEAN RemoteAccess,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

/* The token to hand to the peer. */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MR)(NDK_MR *pNdkMr);

/* The token for our own scatter/gather elements. */
typedef UINT32 (*NDK_FN_GET_LOCAL_TOKEN_FROM_MR)(NDK_MR *pNdkMr);

/* Valid as soon as NdkBind has returned. */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MW)(NDK_MW *pNdkMw);

typedef NTSTATUS (*NDK_FN_RESIZE_CQ)(
    NDK_CQ *pNdkCq,
    ULONG CqDepth,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef void (*NDK_FN_ARM_CQ)(NDK_CQ *pNdkCq, ULONG Type);

typedef ULONG (*NDK_FN_GET_CQ_RESULTS)(NDK_CQ *pNdkCq, NDK_RESULT *Results, ULONG nResults);

/* 1.2. */
typedef ULONG (*NDK_FN_GET_CQ_RESULTS_EX)(NDK_CQ *pNdkCq, NDK_RESULT_EX *Results, ULONG nResults);

/* Interval in microseconds. */
typedef NTSTATUS (*NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION)(
    NDK_CQ *pNdkCq,
    ULONG ModerationInterval,
    ULONG ModerationCount);

typedef NTSTATUS (*NDK_FN_MODIFY_SRQ)(
    NDK_SRQ *pNdkSrq,
    ULONG SrqDepth,
    ULONG NotifyThreshold,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_SRQ_RECEIVE)(
    NDK_SRQ *pNdkSrq,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge);

typedef void (*NDK_FN_FLUSH)(NDK_QP *pNdkQp);

typedef NTSTATUS (*NDK_FN_SEND)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge,
    ULONG Flags);

/* 1.2. The flags come before the token. */
typedef NTSTATUS (*NDK_FN_SEND_AND_INVALIDATE)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge,
    ULONG Flags,
    UINT32 RemoteToken);

typedef NTSTATUS (*NDK_FN_RECEIVE)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge);

typedef NTSTATUS (*NDK_FN_BIND)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    NDK_MR *pMr,
    NDK_MW *pMw,
    PVOID VirtualAddress,
    SIZE_T Length,
    ULONG Flags);

typedef NTSTATUS (*NDK_FN_FAST_REGISTER)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    NDK_MR *pMr,
    ULONG AdapterPageCount,
    const NDK_LOGICAL_ADDRESS *AdapterPageArray,
    ULONG FBO,
    SIZE_T Length,
    PVOID BaseVirtualAddress,
    ULONG Flags);

typedef NTSTATUS (*NDK_FN_INVALIDATE)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    NDK_OBJECT_HEADER *pNdkMrOrMw,
    ULONG Flags);

typedef NTSTATUS (*NDK_FN_READ)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge,
    UINT64 RemoteAddress,
    UINT32 RemoteToken,
    ULONG Flags);

typedef NTSTATUS (*NDK_FN_WRITE)(
    NDK_QP *pNdkQp,
    PVOID RequestContext,
    const NDK_SGE *pSgl,
    ULONG nSge,
    UINT64 RemoteAddress,
    UINT32 RemoteToken,
    ULONG Flags);

typedef NTSTATUS (*NDK_FN_CONNECT)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_QP *pNdkQp,
    const SOCKADDR *pSrcAddress,
    ULONG SrcAddressLength,
    const SOCKADDR *pDestAddress,
    ULONG DestAddressLength,
    ULONG InboundReadLimit,
    ULONG OutboundReadLimit,
    const void *pPrivateData,
    ULONG PrivateDataLength,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_CONNECT_WITH_SHARED_ENDPOINT)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_QP *pNdkQp,
    NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
    const SOCKADDR *pDestAddress,
    ULONG DestAddressLength,
    ULONG InboundReadLimit,
    ULONG OutboundReadLimit,
    const void *pPrivateData,
    ULONG PrivateDataLength,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
    PVOID DisconnectEventContext,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

/* 2.1. */
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT_EX)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
    PVOID DisconnectEventContext,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_ACCEPT)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_QP *pNdkQp,
    ULONG InboundReadLimit,
    ULONG OutboundReadLimit,
    const void *pPrivateData,
    ULONG PrivateDataLength,
    NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
    PVOID DisconnectEventContext,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

/* 2.1. */
typedef NTSTATUS (*NDK_FN_ACCEPT_EX)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_QP *pNdkQp,
    ULONG InboundReadLimit,
    ULONG OutboundReadLimit,
    const void *pPrivateData,
    ULONG PrivateDataLength,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
    PVOID DisconnectEventContext,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_REJECT)(
    NDK_CONNECTOR *pNdkConnector,
    const void *pPrivateData,
    ULONG PrivateDataLength);

typedef NTSTATUS (*NDK_FN_GET_CONNECTION_DATA)(
    NDK_CONNECTOR *pNdkConnector,
    ULONG *pInboundReadLimit,
    ULONG *pOutboundReadLimit,
    PVOID pPrivateData,
    ULONG *pPrivateDataLength);

typedef NTSTATUS (*NDK_FN_GET_LOCAL_ADDRESS)(
    NDK_CONNECTOR *pNdkConnector,
    SOCKADDR *pAddress,
    ULONG *pAddressLength);

typedef NTSTATUS (*NDK_FN_GET_PEER_ADDRESS)(
    NDK_CONNECTOR *pNdkConnector,
    SOCKADDR *pAddress,
    ULONG *pAddressLength);

typedef NTSTATUS (*NDK_FN_DISCONNECT)(
    NDK_CONNECTOR *pNdkConnector,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

/* In the header, but in no table. */
typedef NTSTATUS (*NDK_FN_DISCONNECT_EX)(
    NDK_CONNECTOR *pNdkConnector,
    BOOLEAN Abortive,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_LISTEN)(
    NDK_LISTENER *pNdkListener,
    const SOCKADDR *pAddress,
    ULONG AddressLength,
    NDK_FN_REQUEST_COMPLETION RequestCompletion,
    PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_GET_LISTENER_LOCAL_ADDRESS)(
    NDK_LISTENER *pNdkListener,
    SOCKADDR *pAddress,
    ULONG *pAddressLength);

typedef void (*NDK_FN_CONTROL_CONNECT_EVENTS)(NDK_LISTENER *pNdkListener, BOOLEAN Pause);

typedef NTSTATUS (*NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS)(
    NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
    SOCKADDR *pAddress,
    ULONG *pAddressLength);

/* Table of an adapter. It has no close: NDIS closes it. */
typedef struct _NDK_ADAPTER_DISPATCH {
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_QUERY_ADAPTER_INFO NdkQueryAdapterInfo;
    NDK_FN_CREATE_CQ NdkCreateCq;
    NDK_FN_CREATE_PD NdkCreatePd;
    NDK_FN_CREATE_SHARED_ENDPOINT NdkCreateSharedEndpoint;
    NDK_FN_CREATE_CONNECTOR NdkCreateConnector;
    NDK_FN_CREATE_LISTENER NdkCreateListener;
    NDK_FN_BUILD_LAM NdkBuildLAM;
    NDK_FN_RELEASE_LAM NdkReleaseLAM;
} NDK_ADAPTER_DISPATCH;

/* Table of a completion queue. */
typedef struct _NDK_CQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseCq;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_RESIZE_CQ NdkResizeCq;
    NDK_FN_ARM_CQ NdkArmCq;
    NDK_FN_GET_CQ_RESULTS NdkGetCqResults;
    NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NdkControlCqInterruptModeration;
    NDK_FN_GET_CQ_RESULTS_EX NdkGetCqResultsEx;
} NDK_CQ_DISPATCH;

/* Table of a memory region. */
typedef struct _NDK_MR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMr;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_REGISTER_MR NdkRegisterMr;
    NDK_FN_DEREGISTER_MR NdkDeregisterMr;
    NDK_FN_INITIALIZE_FAST_REGISTER_MR NdkInitializeFastRegisterMr;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MR NdkGetRemoteTokenFromMr;
    NDK_FN_GET_LOCAL_TOKEN_FROM_MR NdkGetLocalTokenFromMr;
} NDK_MR_DISPATCH;

/* Table of a memory window. */
typedef struct _NDK_MW_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseMw;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_GET_REMOTE_TOKEN_FROM_MW NdkGetRemoteTokenFromMw;
} NDK_MW_DISPATCH;

/* Table of a shared receive queue. */
typedef struct _NDK_SRQ_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSrq;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_MODIFY_SRQ NdkModifySrq;
    NDK_FN_SRQ_RECEIVE NdkSrqReceive;
} NDK_SRQ_DISPATCH;

/* Table of a queue pair. */
typedef struct _NDK_QP_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseQp;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_FLUSH NdkFlush;
    NDK_FN_SEND NdkSend;
    NDK_FN_RECEIVE NdkReceive;
    NDK_FN_BIND NdkBind;
    NDK_FN_FAST_REGISTER NdkFastRegister;
    NDK_FN_INVALIDATE NdkInvalidate;
    NDK_FN_READ NdkRead;
    NDK_FN_WRITE NdkWrite;
    NDK_FN_SEND_AND_INVALIDATE NdkSendAndInvalidate;
} NDK_QP_DISPATCH;

/* Table of a protection domain. */
typedef struct _NDK_PD_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkClosePd;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_CREATE_MR NdkCreateMr;
    NDK_FN_CREATE_MW NdkCreateMw;
    NDK_FN_CREATE_SRQ NdkCreateSrq;
    NDK_FN_CREATE_QP NdkCreateQp;
    NDK_FN_CREATE_QP_WITH_SRQ NdkCreateQpWithSrq;
    NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NdkGetPrivilegedMemoryRegionToken;
} NDK_PD_DISPATCH;

/* Table of a connector. The last two members are of 2.1. */
typedef struct _NDK_CONNECTOR_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseConnector;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_CONNECT NdkConnect;
    NDK_FN_CONNECT_WITH_SHARED_ENDPOINT NdkConnectWithSharedEndpoint;
    NDK_FN_COMPLETE_CONNECT NdkCompleteConnect;
    NDK_FN_ACCEPT NdkAccept;
    NDK_FN_REJECT NdkReject;
    NDK_FN_GET_CONNECTION_DATA NdkGetConnectionData;
    NDK_FN_GET_LOCAL_ADDRESS NdkGetLocalAddress;
    NDK_FN_GET_PEER_ADDRESS NdkGetPeerAddress;
    NDK_FN_DISCONNECT NdkDisconnect;
    NDK_FN_COMPLETE_CONNECT_EX NdkCompleteConnectEx;
    NDK_FN_ACCEPT_EX NdkAcceptEx;
} NDK_CONNECTOR_DISPATCH;

/* Table of a listener. */
typedef struct _NDK_LISTENER_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseListener;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_LISTEN NdkListen;
    NDK_FN_GET_LISTENER_LOCAL_ADDRESS NdkGetLocalAddress;
    NDK_FN_CONTROL_CONNECT_EVENTS NdkControlConnectEvents;
} NDK_LISTENER_DISPATCH;

/* Table of a shared endpoint. */
typedef struct _NDK_SHARED_ENDPOINT_DISPATCH {
    NDK_FN_CLOSE_OBJECT NdkCloseSharedEndpoint;
    NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
    NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NdkGetLocalAddress;
} NDK_SHARED_ENDPOINT_DISPATCH;

/* An open adapter: parent of everything. */
struct _NDK_ADAPTER {
    NDK_OBJECT_HEADER Header;
    const NDK_ADAPTER_DISPATCH *Dispatch;
};

/* A queue pair. */
struct _NDK_QP {
    NDK_OBJECT_HEADER Header;
    const NDK_QP_DISPATCH *Dispatch;
};

/* A completion queue. */
struct _NDK_CQ {
    NDK_OBJECT_HEADER Header;
    const NDK_CQ_DISPATCH *Dispatch;
};

/* A memory region. */
struct _NDK_MR {
    NDK_OBJECT_HEADER Header;
    const NDK_MR_DISPATCH *Dispatch;
};

/* A memory window. */
struct _NDK_MW {
    NDK_OBJECT_HEADER Header;
    const NDK_MW_DISPATCH *Dispatch;
};

/* A protection domain. */
struct _NDK_PD {
    NDK_OBJECT_HEADER Header;
    const NDK_PD_DISPATCH *Dispatch;
};

/* A local address and port for several outgoing connections. */
struct _NDK_SHARED_ENDPOINT {
    NDK_OBJECT_HEADER Header;
    const NDK_SHARED_ENDPOINT_DISPATCH *Dispatch;
};

/* One end of a connection. */
struct _NDK_CONNECTOR {
    NDK_OBJECT_HEADER Header;
    const NDK_CONNECTOR_DISPATCH *Dispatch;
};

/* Waits for incoming connections. */
struct _NDK_LISTENER {
    NDK_OBJECT_HEADER Header;
    const NDK_LISTENER_DISPATCH *Dispatch;
};

/* A shared receive queue. */
struct _NDK_SRQ {
    NDK_OBJECT_HEADER Header;
    const NDK_SRQ_DISPATCH *Dispatch;
};

#ifdef __cplusplus
}
#endif

#endif
