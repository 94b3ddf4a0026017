//! What the two files must agree on.

use crate::lint::{Lint, Rule};
use crate::parse::{Inf, Section};
use crate::spec::VNIC;

impl<'a> Lint<'a> {
    /// Whichever of the two is installed last writes the service; so both must write the same.
    pub(crate) fn pair(&mut self, vnic: &'a Inf) {
        let other = Lint { inf: vnic, spec: &VNIC, findings: Vec::new() };
        let (ours, theirs) = (self.service_sections(), other.service_sections());
        if ours.len() != theirs.len() {
            let text = format!("other builds of Windows than in {}", vnic.file);
            self.report(1, Rule::Pair, text);
        }
        for ((build, service), (other_build, other_service)) in ours.iter().zip(&theirs) {
            if build != other_build {
                let text = format!("build {build} here, {other_build} in {}", vnic.file);
                self.report(service.line, Rule::Pair, text);
            }
            self.same_service(service, vnic, other_service);
        }
    }

    fn service_sections(&self) -> Vec<(u32, &'a Section)> {
        let sections = self.model_entries().into_iter().filter_map(|model| {
            let add = self.services(model.install?).first().copied()?;
            Some((model.build, self.inf.section(add.value(2))?))
        });
        sections.collect()
    }

    fn same_service(&mut self, service: &'a Section, vnic: &'a Inf, other: &'a Section) {
        let theirs = Lint { inf: vnic, spec: &VNIC, findings: Vec::new() };
        let (ours, theirs) = (self.flat_service(service), theirs.flat_service(other));
        for (line, text) in &ours {
            if !theirs.iter().any(|(_, other)| other == text) {
                let text = format!("{text}: not so in {}", vnic.file);
                self.report(*line, Rule::Pair, text);
            }
        }
        for (_, text) in &theirs {
            if !ours.iter().any(|(_, other)| other == text) {
                let text = format!("{text}: only in {}", vnic.file);
                self.report(service.line, Rule::Pair, text);
            }
        }
    }

    /// A service's entries, with the strings and the registry entries put in their places.
    fn flat_service(&self, service: &'a Section) -> Vec<(usize, String)> {
        let registry = self.registry(service);
        let direct = service.entries.iter().filter(|entry| entry.key.as_deref() != Some("AddReg"));
        let flat = direct.chain(registry).map(|entry| {
            let values = self.inf.resolve(&entry.values.join(", "));
            let text = match &entry.key {
                Some(key) => format!("{key} = {values}"),
                None => values,
            };
            (entry.line, text)
        });
        flat.collect()
    }
}
