//! An adapter that sends and is not answered: who keeps the frames that are for it.

use anyhow::Result;

use super::Scope;
use crate::machine::{LOWER_MODE, Machine, Mode, Traffic};

/// Hosts that give a guest's NIC the frames of its own MAC address alone, by a word of their model, and what changes that.
const HOSTS: [(&str, &str); 8] = [
    ("VMware", "VMware: set the port group to accept promiscuous mode and forged transmits"),
    ("VirtualBox", "VirtualBox: set the network adapter's Promiscuous Mode to Allow All"),
    ("Amazon EC2", CLOUD),
    ("Google", CLOUD),
    ("QEMU", KVM),
    ("KVM", KVM),
    ("Red Hat", KVM),
    (
        "Microsoft Corporation Virtual Machine",
        "Hyper-V: Set-VMNetworkAdapter -MacAddressSpoofing On, on the host; Azure has no such switch",
    ),
];
const KVM: &str =
    "KVM: trustGuestRxFilters='yes' of a macvtap interface, and no filter no-mac-spoofing";
const CLOUD: &str = "a cloud gives an instance the frames of its own MAC address alone";
const OTHERS: &str = "the switch's port may take one MAC address alone, or authenticate each (802.1X): allow the second one";

/// What mends it, if the counters tell; the adapter and its peers may be at fault in other ways.
pub(super) fn mends(machine: &mut impl Machine, scope: &Scope<'_>) -> Result<Option<String>> {
    let Some(vnic) = machine.vnic(scope.device)? else { return Ok(None) };
    let mode = Mode::of_keyword(machine.keyword(scope.device, LOWER_MODE)?.as_deref());
    let Traffic { sent, received_own, received_group } = vnic.traffic;
    if mode != Mode::Own || sent == 0 || received_own > 0 {
        return Ok(None);
    }
    if received_group == 0 {
        return Ok(Some(format!(
            "it sent {sent} packets, and nothing came, no broadcast either: give it the VLAN of its network (VlanID)"
        )));
    }
    let model = machine.host()?.model;
    let known = HOSTS.iter().find(|(word, _)| model.contains(word));
    let word = known.map_or(OTHERS, |(_, word)| word);
    Ok(Some(format!(
        "it sent {sent} packets, and of {received_group} that came none was for its own MAC address. {word}; or install with --mode share"
    )))
}
