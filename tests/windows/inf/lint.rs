//! The rules: what must hold in any INF, and what must hold in ours.

use crate::parse::{Entry, Inf, Section, tokens};
use crate::spec::{LOWER, Spec, VNIC};
use std::fmt;

/// A mistake and its place.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {:?}: {}", self.file, self.line, self.rule, self.text)
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Rule {
    Syntax,
    DuplicateSection,
    DuplicateKey,
    MissingSection,
    UnreferencedSection,
    UndefinedString,
    UnusedString,
    Version,
    Catalog,
    DriverVer,
    PnpLockdown,
    Decoration,
    HardwareId,
    InstallEntry,
    Range,
    Dirid,
    CopySource,
    CopyDestination,
    AddService,
    ServiceEntry,
    ServiceName,
    EventLog,
    Removal,
    Keyword,
    KeywordDefault,
    UnknownKeyword,
    AbsolutePath,
    RegistryRoot,
    Pair,
}

/// All that is wrong with the two files, in the order of their lines.
pub(crate) fn lint(vnic: &Inf, lower: &Inf) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (inf, spec) in [(vnic, &VNIC), (lower, &LOWER)] {
        let mut lint = Lint { inf, spec, findings: Vec::new() };
        lint.text();
        lint.references();
        lint.strings();
        lint.version();
        lint.models();
        findings.append(&mut lint.findings);
    }
    let mut lint = Lint { inf: lower, spec: &LOWER, findings };
    lint.pair(vnic);
    lint.findings.sort();
    lint.findings.dedup();
    lint.findings
}

pub(crate) struct Lint<'a> {
    pub(crate) inf: &'a Inf,
    pub(crate) spec: &'a Spec,
    pub(crate) findings: Vec<Finding>,
}

/// One line of a Models section: what is installed from which build of Windows on.
pub(crate) struct Model<'a> {
    pub(crate) build: u32,
    pub(crate) entry: &'a Entry,
    pub(crate) install: Option<&'a Section>,
}

impl<'a> Lint<'a> {
    pub(crate) fn report(&mut self, line: usize, rule: Rule, text: impl Into<String>) {
        self.findings.push(Finding { file: self.inf.file.clone(), line, rule, text: text.into() });
    }

    /// The sections that `section` names under `key`. Those that are missing are found elsewhere.
    pub(crate) fn named(&self, section: &'a Section, key: &'a str) -> Vec<&'a Section> {
        section.names(key).filter_map(|(_, name)| self.inf.section(name)).collect()
    }

    // Single lines.

    fn text(&mut self) {
        for (line, text) in &self.inf.malformed {
            self.report(*line, Rule::Syntax, text.as_str());
        }
        for (index, section) in self.inf.sections.iter().enumerate() {
            let mut before = self.inf.sections[..index].iter();
            if before.any(|other| other.name.eq_ignore_ascii_case(&section.name)) {
                let text = format!("[{}] is there twice", section.name);
                self.report(section.line, Rule::DuplicateSection, text);
            }
            self.section_text(section);
        }
    }

    fn section_text(&mut self, section: &Section) {
        for (index, entry) in section.entries.iter().enumerate() {
            let name = entry_name(entry);
            if section.entries[..index].iter().any(|other| entry_name(other) == name) {
                let text = format!("{name} is there twice in [{}]", section.name);
                self.report(entry.line, Rule::DuplicateKey, text);
            }
            if let Some(text) = entry.texts().find(|text| is_absolute(text)) {
                let text = format!("{text} is an absolute path");
                self.report(entry.line, Rule::AbsolutePath, text);
            }
            let root = entry.value(0);
            if entry.key.is_none() && root.starts_with("HK") && root != "HKR" {
                let text = format!("{root} is outside of the driver's own keys");
                self.report(entry.line, Rule::RegistryRoot, text);
            }
        }
    }

    // The net of sections.

    fn references(&mut self) {
        let used = self.used_sections();
        for (line, name) in &used {
            if self.inf.section(name).is_none() {
                self.report(*line, Rule::MissingSection, format!("[{name}] is nowhere"));
            }
        }
        for section in &self.inf.sections {
            if !used.iter().any(|(_, name)| name.eq_ignore_ascii_case(&section.name)) {
                let text = format!("nothing leads to [{}]", section.name);
                self.report(section.line, Rule::UnreferencedSection, text);
            }
        }
    }

    /// Every section's name that Windows will look up, and the line that makes it do so.
    fn used_sections(&self) -> Vec<(usize, String)> {
        let fixed =
            ["Version", "Manufacturer", "SourceDisksNames", "SourceDisksFiles", "DestinationDirs"];
        let mut used: Vec<_> = fixed.into_iter().map(|name| (1, name.into())).collect();
        used.push((1, "Strings".into()));
        for (line, _, models) in self.models_sections() {
            used.push((line, models));
        }
        for model in self.model_entries() {
            used.push((model.entry.line, model.entry.value(0).into()));
            let Some(install) = model.install else { continue };
            used.push((install.line, format!("{}.Services", install.name)));
            if self.spec.removal {
                used.push((install.line, format!("{}.Remove.Services", install.name)));
            }
            let lists = install.names("CopyFiles").chain(install.names("AddReg"));
            used.extend(lists.map(|(line, name)| (line, name.into())));
            for service in self.services(install) {
                for name in [service.value(2), service.value(3)] {
                    used.push((service.line, name.into()));
                    let lists = self.inf.section(name).into_iter().flat_map(|s| s.names("AddReg"));
                    used.extend(lists.map(|(line, name)| (line, name.into())));
                }
            }
        }
        used.retain(|(_, name)| !name.is_empty());
        used
    }

    /// Line, decoration and name of each Models section that \[Manufacturer\] promises.
    pub(crate) fn models_sections(&self) -> Vec<(usize, &'a str, String)> {
        let entries = self.inf.section("Manufacturer").map_or(&[][..], |section| &section.entries);
        let decorated = entries.iter().flat_map(|entry| {
            let (name, decorations) = entry.values.split_first().expect("an entry has a value");
            decorations.iter().map(move |d| (entry.line, d.as_str(), format!("{name}.{d}")))
        });
        decorated.collect()
    }

    pub(crate) fn model_entries(&self) -> Vec<Model<'a>> {
        let sections = self.models_sections();
        let entries = sections.iter().flat_map(|(_, decoration, name)| {
            let section = self.inf.section(name);
            section.into_iter().flat_map(|section| &section.entries).map(|entry| Model {
                build: build(decoration).unwrap_or(0),
                entry,
                install: self.inf.section(entry.value(0)),
            })
        });
        entries.collect()
    }

    pub(crate) fn services(&self, install: &Section) -> Vec<&'a Entry> {
        let section = self.inf.section(&format!("{}.Services", install.name));
        section.into_iter().flat_map(|section| section.keyed("AddService")).collect()
    }

    // Strings.

    fn strings(&mut self) {
        let Some(strings) = self.inf.section("Strings") else { return };
        let elsewhere = self.inf.sections.iter().filter(|section| section.name != strings.name);
        let used: Vec<(usize, &str)> = elsewhere
            .flat_map(|section| &section.entries)
            .flat_map(|entry| entry.texts().map(move |text| (entry.line, text)))
            .flat_map(|(line, text)| tokens(text).into_iter().map(move |token| (line, token)))
            .collect();
        for &(line, token) in &used {
            let text = format!("%{token}%");
            match token.parse() {
                Ok(12 | 13) => {}
                Ok(0_u32..) => self.report(line, Rule::Dirid, format!("{text} is not for drivers")),
                Err(_) if strings.value(token).is_some() => {}
                Err(_) => self.report(line, Rule::UndefinedString, format!("{text} is no string")),
            }
        }
        for entry in &strings.entries {
            let name = entry.key.as_deref().unwrap_or_default();
            if !used.iter().any(|(_, token)| token.eq_ignore_ascii_case(name)) {
                self.report(entry.line, Rule::UnusedString, format!("%{name}% is never used"));
            }
        }
    }

    // [Version].

    fn version(&mut self) {
        let Some(version) = self.inf.section("Version") else { return };
        let spec = self.spec;
        self.expect(version, "Signature", "$WINDOWS NT$", Rule::Version);
        self.expect(version, "Class", spec.class, Rule::Version);
        self.expect(version, "ClassGuid", spec.class_guid, Rule::Version);
        self.expect(version, "Provider", "%Provider%", Rule::Version);
        self.expect(version, "CatalogFile", spec.catalog, Rule::Catalog);
        self.expect(version, "PnpLockdown", "1", Rule::PnpLockdown);
        // stampinf fills it in; a date in the source would grow old there.
        self.expect(version, "DriverVer", "", Rule::DriverVer);
    }

    pub(crate) fn expect(&mut self, section: &Section, key: &str, wanted: &str, rule: Rule) {
        match section.value(key) {
            Some((_, value)) if value.eq_ignore_ascii_case(wanted) => {}
            Some((line, value)) => {
                self.report(line, rule, format!("{key} is {value:?}, not {wanted:?}"));
            }
            None => {
                let text = format!("[{}] lacks {key} = {wanted}", section.name);
                self.report(section.line, rule, text);
            }
        }
    }
}

/// The build in `NT$ARCH$.10.0...build`.
pub(crate) fn build(decoration: &str) -> Option<u32> {
    decoration.strip_prefix("NT$ARCH$.10.0...")?.parse().ok()
}

/// What makes an entry the only one of its name in a section.
fn entry_name(entry: &Entry) -> String {
    match entry.key.as_deref() {
        // One section may add several services.
        Some(key) if key.eq_ignore_ascii_case("AddService") => format!("{key} {}", entry.value(0)),
        Some(key) => key.to_ascii_lowercase(),
        None => entry.values[..entry.values.len().min(3)].join(", ").to_ascii_lowercase(),
    }
}

/// A drive letter, a share, or the root.
fn is_absolute(text: &str) -> bool {
    let drive = |pair: &[u8]| pair[0].is_ascii_alphabetic() && pair[1] == b':';
    text.starts_with('\\') || text.as_bytes().windows(2).any(drive)
}
