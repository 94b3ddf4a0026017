//! The statuses that lists come back with
//! ([`NDIS_STATUS`](https://learn.microsoft.com/windows-hardware/drivers/network/ndis-status-values2)).

/// There is no link, or no NIC.
pub const MEDIA_DISCONNECTED: i32 = 0xC023_001F_u32.cast_signed();
const REQUEST_ABORTED: i32 = 0xC023_000C_u32.cast_signed();
const RESET_IN_PROGRESS: i32 = 0xC023_000D_u32.cast_signed();
const ADAPTER_REMOVED: i32 = 0xC023_0018_u32.cast_signed();
const PAUSED: i32 = 0xC023_002A_u32.cast_signed();
const LOW_POWER_STATE: i32 = 0xC023_002F_u32.cast_signed();
const RESOURCES: i32 = 0xC000_009A_u32.cast_signed();

/// Whether a NIC has refused the list for what it is. The other failures pass: it was reset, paused or without link or power, or
/// had no room.
#[must_use]
pub const fn is_refusal(status: i32) -> bool {
    let passes = matches!(
        status,
        MEDIA_DISCONNECTED
            | REQUEST_ABORTED
            | RESET_IN_PROGRESS
            | ADAPTER_REMOVED
            | PAUSED
            | LOW_POWER_STATE
            | RESOURCES
    );
    status < 0 && !passes
}
