//! All of a machine that an installation could leave behind, or take from a NIC.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::machine::{Inf, LOWER, Machine, Store, TCPIP};
use crate::verify::Verdict;

/// A sentence for each thing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Remains(Vec<String>);

impl Remains {
    /// `package` tells whose trust is looked for.
    pub(super) fn read(machine: &mut impl Machine, package: &Path) -> Result<Self> {
        let mut lines = Vec::new();
        for nic in machine.nics()? {
            let (name, guid) = (&nic.name, &nic.guid);
            for component in [LOWER, TCPIP[0], TCPIP[1]] {
                let is_bound = machine.bound(guid, component)? == Some(true);
                lines.push(format!("NIC '{name}': {component} bound: {is_bound}"));
            }
            // One without TCP/IP has no settings to be read.
            let settings = machine.ip_settings(guid).map(|settings| format!("{settings:?}"));
            lines.push(format!("NIC '{name}': {}", settings.unwrap_or_default()));
        }
        for inf in Inf::ALL {
            lines.extend(machine.staged(inf)?.iter().map(|name| format!("driver store: {name}")));
        }
        let signer = machine.signer(&package.join(Inf::Adapter.catalog()))?;
        for store in [Store::Root, Store::TrustedPublisher] {
            let trusts = machine.trusts(store, &signer.thumbprint)?;
            lines.push(format!("{store} trusts {}: {trusts}", signer.subject));
        }
        lines.push(format!("protocol: {}", machine.has_protocol()?));
        lines.extend(machine.devices()?.iter().map(|device| format!("device {device}")));
        lines.push(format!("journal: {}", machine.journal()?.is_some()));
        lines.push(format!("awaits a restart: {:?}", machine.awaits_restart()?));
        Ok(Self(lines))
    }

    /// Or tells each thing that is not as before; of a NIC that is gone nothing is expected.
    pub(super) fn compare(&self, after: &Self, gone: &[String]) -> Result<Verdict> {
        let of_gone =
            |line: &String| gone.iter().any(|nic| line.starts_with(&format!("NIC '{nic}'")));
        let less = |lines: &[String], others: &[String], sign: &str| -> Vec<String> {
            let lines = lines.iter().filter(|line| !others.contains(line) && !of_gone(line));
            lines.map(|line| format!("{sign} {line}")).collect()
        };
        let mut differences = less(&self.0, &after.0, "-");
        differences.extend(less(&after.0, &self.0, "+"));
        ensure!(differences.is_empty(), "{}", differences.join("; "));
        Ok(Verdict::Passed(format!("{} things are as before", self.0.len())))
    }
}
