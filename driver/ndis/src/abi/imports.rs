//! All imports of the image from NDIS and IP Helper, and through [`kernel`] from the kernel. No other
//! module imports. No crate binds NDIS 6 or the kernel's IP Helper.
//!
//! IRQL as the documentation of each function states it; callers repeat it where it matters.

use super::*;

pub(crate) use super::kernel::*;

#[link(name = "NDIS.SYS", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub(crate) fn NdisGetVersion() -> u32;
    pub(crate) fn NdisMRegisterMiniportDriver(
        driver: *mut DRIVER_OBJECT,
        registry_path: *mut UNICODE_STRING,
        context: NDIS_HANDLE,
        characteristics: *mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        handle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisMDeregisterMiniportDriver(handle: NDIS_HANDLE);
    pub(crate) fn NdisSetOptionalHandlers(
        handle: NDIS_HANDLE,
        handlers: *mut NDIS_OBJECT_HEADER,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisRegisterDeviceEx(
        handle: NDIS_HANDLE,
        attributes: *mut NDIS_DEVICE_OBJECT_ATTRIBUTES,
        device: *mut PVOID,
        device_handle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisDeregisterDeviceEx(device_handle: NDIS_HANDLE);
    pub(crate) fn NdisMSetMiniportAttributes(
        adapter: NDIS_HANDLE,
        attributes: *mut NDIS_OBJECT_HEADER,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisMIndicateStatusEx(
        adapter: NDIS_HANDLE,
        indication: *mut NDIS_STATUS_INDICATION,
    );
    pub(crate) fn NdisMNetPnPEvent(
        adapter: NDIS_HANDLE,
        event: *mut NET_PNP_EVENT_NOTIFICATION,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisMIndicateReceiveNetBufferLists(
        adapter: NDIS_HANDLE,
        lists: *mut NET_BUFFER_LIST,
        port: NDIS_PORT_NUMBER,
        count: ULONG,
        flags: ULONG,
    );
    pub(crate) fn NdisMSendNetBufferListsComplete(
        adapter: NDIS_HANDLE,
        lists: *mut NET_BUFFER_LIST,
        flags: ULONG,
    );
    pub(crate) fn NdisRegisterProtocolDriver(
        context: NDIS_HANDLE,
        characteristics: *mut NDIS_PROTOCOL_DRIVER_CHARACTERISTICS,
        handle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisDeregisterProtocolDriver(handle: NDIS_HANDLE);
    pub(crate) fn NdisReEnumerateProtocolBindings(protocol: NDIS_HANDLE);
    pub(crate) fn NdisOpenAdapterEx(
        protocol: NDIS_HANDLE,
        binding_context: NDIS_HANDLE,
        parameters: *mut NDIS_OPEN_PARAMETERS,
        bind_context: NDIS_HANDLE,
        binding: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisCloseAdapterEx(binding: NDIS_HANDLE) -> NDIS_STATUS;
    pub(crate) fn NdisOidRequest(
        binding: NDIS_HANDLE,
        request: *mut NDIS_OID_REQUEST,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisSendNetBufferLists(
        binding: NDIS_HANDLE,
        lists: *mut NET_BUFFER_LIST,
        port: NDIS_PORT_NUMBER,
        flags: ULONG,
    );
    pub(crate) fn NdisCancelSendNetBufferLists(binding: NDIS_HANDLE, id: PVOID);
    pub(crate) fn NdisReturnNetBufferLists(
        binding: NDIS_HANDLE,
        lists: *mut NET_BUFFER_LIST,
        flags: ULONG,
    );
    pub(crate) fn NdisAllocateNetBufferListPool(
        handle: NDIS_HANDLE,
        parameters: *mut NET_BUFFER_LIST_POOL_PARAMETERS,
    ) -> NDIS_HANDLE;
    pub(crate) fn NdisFreeNetBufferListPool(pool: NDIS_HANDLE);
    pub(crate) fn NdisAllocateNetBufferAndNetBufferList(
        pool: NDIS_HANDLE,
        context_size: USHORT,
        context_back_fill: USHORT,
        mdls: *mut MDL,
        data_offset: ULONG,
        data_length: SIZE_T,
    ) -> *mut NET_BUFFER_LIST;
    pub(crate) fn NdisFreeNetBufferList(list: *mut NET_BUFFER_LIST);
    pub(crate) fn NdisAllocateCloneNetBufferList(
        original: *mut NET_BUFFER_LIST,
        list_pool: NDIS_HANDLE,
        buffer_pool: NDIS_HANDLE,
        flags: ULONG,
    ) -> *mut NET_BUFFER_LIST;
    pub(crate) fn NdisFreeCloneNetBufferList(clone: *mut NET_BUFFER_LIST, flags: ULONG);
    pub(crate) fn NdisCopySendNetBufferListInfo(
        to: *mut NET_BUFFER_LIST,
        from: *mut NET_BUFFER_LIST,
    );
    pub(crate) fn NdisCopyReceiveNetBufferListInfo(
        to: *mut NET_BUFFER_LIST,
        from: *mut NET_BUFFER_LIST,
    );
    pub(crate) fn NdisGetRssProcessorInformation(
        handle: NDIS_HANDLE,
        info: *mut NDIS_RSS_PROCESSOR_INFO,
        size: *mut SIZE_T,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisOpenConfigurationEx(
        object: *mut NDIS_CONFIGURATION_OBJECT,
        configuration: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    pub(crate) fn NdisReadConfiguration(
        status: *mut NDIS_STATUS,
        value: *mut *mut NDIS_CONFIGURATION_PARAMETER,
        configuration: NDIS_HANDLE,
        keyword: *mut UNICODE_STRING,
        kind: i32,
    );
    pub(crate) fn NdisWriteConfiguration(
        status: *mut NDIS_STATUS,
        configuration: NDIS_HANDLE,
        keyword: *mut UNICODE_STRING,
        value: *mut NDIS_CONFIGURATION_PARAMETER,
    );
    pub(crate) fn NdisReadNetworkAddress(
        status: *mut NDIS_STATUS,
        address: *mut PVOID,
        length: *mut u32,
        configuration: NDIS_HANDLE,
    );
    pub(crate) fn NdisCloseConfiguration(configuration: NDIS_HANDLE);
}

#[link(name = "cng.sys", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub(crate) fn BCryptGenRandom(
        algorithm: PVOID,
        buffer: *mut u8,
        length: ULONG,
        flags: ULONG,
    ) -> NTSTATUS;
}

#[link(name = "NETIO.SYS", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub(crate) fn GetUnicastIpAddressTable(
        family: ADDRESS_FAMILY,
        table: *mut *mut MIB_UNICASTIPADDRESS_TABLE,
    ) -> NTSTATUS;
    pub(crate) fn FreeMibTable(table: PVOID);
    pub(crate) fn NotifyUnicastIpAddressChange(
        family: ADDRESS_FAMILY,
        callback: UNICAST_IPADDRESS_CHANGE_CALLBACK,
        context: PVOID,
        initial: BOOLEAN,
        handle: *mut PVOID,
    ) -> NTSTATUS;
    pub(crate) fn NotifyRouteChange2(
        family: ADDRESS_FAMILY,
        callback: IPFORWARD_CHANGE_CALLBACK,
        context: PVOID,
        initial: BOOLEAN,
        handle: *mut PVOID,
    ) -> NTSTATUS;
    pub(crate) fn NotifyIpInterfaceChange(
        family: ADDRESS_FAMILY,
        callback: IPINTERFACE_CHANGE_CALLBACK,
        context: PVOID,
        initial: BOOLEAN,
        handle: *mut PVOID,
    ) -> NTSTATUS;
    pub(crate) fn CancelMibChangeNotify2(handle: PVOID) -> NTSTATUS;
    pub(crate) fn GetBestRoute2(
        luid: *const NET_LUID,
        index: NET_IFINDEX,
        source: *const SOCKADDR_INET,
        destination: *const SOCKADDR_INET,
        options: ULONG,
        route: *mut MIB_IPFORWARD_ROW2,
        best_source: *mut SOCKADDR_INET,
    ) -> NTSTATUS;
    pub(crate) fn GetIpNetEntry2(row: *mut MIB_IPNET_ROW2) -> NTSTATUS;
    pub(crate) fn ResolveIpNetEntry2(
        row: *mut MIB_IPNET_ROW2,
        source: *const SOCKADDR_INET,
    ) -> NTSTATUS;
    pub(crate) fn ConvertInterfaceGuidToLuid(guid: *const GUID, luid: *mut NET_LUID) -> NTSTATUS;
    pub(crate) fn GetIfEntry2(row: *mut MIB_IF_ROW2) -> NTSTATUS;
}
