//! `netadapter-client.sys`: the client driver, its entry point, and the services of the kernel that it needs.
//!
//! Behind its adapter lives a neighbour that answers ARP and pings at 169.254.77.1. Elsewhere than on Windows this is
//! empty.
#![cfg(all(windows, target_env = "msvc"))]
#![no_std]
#![allow(unsafe_code, reason = "calls the kernel and the loader of frameworks")]

#[path = "../../../driver/image/src/runtime.rs"]
mod runtime;

mod binding;
mod kernel;

use binding::{DRIVER_OBJECT, UNICODE_STRING};
use core::net::{IpAddr, Ipv4Addr};
use netadapter_client::abi::{NETADAPTER, NTSTATUS};
use netadapter_client::resident::{Neighbour, Resident};
use netadapter_client::{Client, create};
use netadapter_glue::netadapter::{NetAdapterConfig, NetAdapterEdge};

extern crate alloc;
use alloc::boxed::Box;

/// Locally administered addresses, "NC" in them.
static CLIENT: Client = Client {
    mac: [0x02, 0x4e, 0x43, 0, 0, 1],
    edge: NetAdapterConfig { mac: [0x02, 0x4e, 0x43, 0, 0, 2], mtu: 1500, depth: 256 },
    link_speed: 10_000_000_000,
    attach,
};

fn attach(_adapter: NETADAPTER, edge: NetAdapterEdge) -> Box<dyn Resident> {
    Neighbour::new(edge, &[IpAddr::V4(Ipv4Addr::new(169, 254, 77, 1))])
}

/// The entry of the image. PASSIVE_LEVEL.
///
/// # Safety
/// Called once by the system, with its driver object and the path of the service's key.
#[unsafe(export_name = "DriverEntry")]
unsafe extern "system" fn driver_entry(
    driver: *mut DRIVER_OBJECT,
    registry_path: *mut UNICODE_STRING,
) -> NTSTATUS {
    // SAFETY: the arguments are the system's.
    let bound = unsafe { binding::bind(driver, registry_path) };
    if bound.ok().is_err() {
        return bound;
    }
    let status = create(driver.cast(), registry_path.cast(), &CLIENT);
    if status.ok().is_err() {
        binding::unbind();
        return status;
    }
    // SAFETY: as above, and the driver is bound.
    unsafe { binding::stay(driver) };
    status
}
