//! The Windows driver around the NDK provider: a virtual Ethernet miniport that provides NDK, over a
//! protocol bound to the NIC that its configuration names.
//!
//! ```text
//!   TCP/IP, SMB Direct
//!        |  upper     the miniport: Adapter
//!        |  pairing   LowerAdapter = interface GUID of the NIC joins the halves
//!        |  lower     the protocol: Binding
//!       NIC
//! ```
//! Ordinary frames are sent as clones and shown to TCP/IP as copies; RoCEv2 frames to our addresses end in the
//! poll cores of the crate `driver`. Either half may start first and stop first. A gate (`os::sync::Gate`) at each
//! half counts its calls and frames in progress, and its owner waits for the last of them before it replies
//! to NDIS.
//!
//! Modules: [`abi`] (the declarations of NDIS, the kernel and IP Helper), `os` (the kernel's services:
//! pool, time, threads, the runner), `upper`, `lower`, `pairing`. `entry` loads and unloads all of it. On
//! other systems than Windows only [`abi`] and the names exist, for tests and tools.
//!
//! # Glossary
//!
//! | Word | Meaning | Elsewhere |
//! | --- | --- | --- |
//! | adapter | the virtual miniport that TCP/IP and NDK consumers see; the upper half | NDIS: miniport adapter |
//! | binding | the open NIC below; the lower half | NDIS: protocol binding |
//! | attachment | the state of an adapter that names its binding | |
//! | in turn | serialized with all other joining and parting of adapters and bindings | a mutex at PASSIVE_LEVEL |
//! | gate | a count of calls and frames in progress that its owner can close and wait for | rundown protection |
//! | clone | a net buffer list over the MDLs of another one | NDIS |
//! | to lend | to pass a received list to the poll core until it is returned | NDIS: without `NDIS_RECEIVE_FLAGS_RESOURCES` |
//! | runner | the DPC or thread that holds the run token and polls the core | |
//! | seat | a processor that serves a poll core | |
//! | run token | the right to run the poll core; NDK's tokens are keys | |
//! | reserve | a block of pool that is set aside before work that may not fail | |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod abi;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod addresses;
pub mod control;
pub mod counter_sets;
#[cfg(all(windows, target_env = "msvc"))]
mod counters;
#[cfg(all(windows, target_env = "msvc"))]
mod entry;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod frame;
#[cfg(all(windows, target_env = "msvc"))]
mod handler;
#[cfg(all(windows, target_env = "msvc"))]
mod keywords;
#[cfg(all(windows, target_env = "msvc"))]
mod log;
#[cfg(all(windows, target_env = "msvc"))]
mod lower;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod offload;
#[cfg(all(windows, target_env = "msvc"))]
mod os;
#[cfg(all(windows, target_env = "msvc"))]
mod pairing;
pub mod problems;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod qos;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod seats;
#[cfg(any(all(test, not(loom)), all(windows, target_env = "msvc")))]
mod sorting;
pub mod stage;
#[cfg(any(test, all(windows, target_env = "msvc")))]
mod token;
#[cfg(all(windows, target_env = "msvc"))]
mod upper;

/// The name of the service, its network component and its trace provider. NDIS connects the protocol to the
/// network component whose `Ndi\Service` is the name under which it registers, letter by letter.
pub const SERVICE: &str = "ndkrocev2";
/// The file that Windows loads.
pub const IMAGE: &str = "ndkrocev2.sys";
