//! The control device: administrators read a snapshot of the driver there, and change nothing.
//!
//! NDIS makes it (`NdisRegisterDeviceEx`), with a security descriptor, and dispatches its requests beside its own. The I/O
//! manager's own way to a secured device, `WdmlibIoCreateDeviceSecure`, stands in a library that every driver links
//! (`wdmsec.lib`), and no module of the kernel exports it.

#[cfg(all(windows, target_env = "msvc"))]
pub(crate) mod device;
#[cfg(all(windows, target_env = "msvc"))]
mod read;
pub mod snapshot;
#[cfg(test)]
mod tests;
