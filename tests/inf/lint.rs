//! The rules: what must hold in any INF, and what must hold in ours.

use crate::parse::{Entry, Inf, Section, tokens};
use crate::spec::{IMAGE, Keyword, LOWER, SERVICE, Spec, VNIC};
use std::fmt;

/// From this build of Windows on, a protocol may run from the driver store.
const DRIVER_STORE_BUILD: u32 = 25319;

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

struct Lint<'a> {
    inf: &'a Inf,
    spec: &'a Spec,
    findings: Vec<Finding>,
}

/// One line of a Models section: what is installed from which build of Windows on.
struct Model<'a> {
    build: u32,
    entry: &'a Entry,
    install: Option<&'a Section>,
}

impl<'a> Lint<'a> {
    fn report(&mut self, line: usize, rule: Rule, text: impl Into<String>) {
        self.findings.push(Finding { file: self.inf.file.clone(), line, rule, text: text.into() });
    }

    /// The sections that `section` names under `key`. Those that are missing are found elsewhere.
    fn named(&self, section: &'a Section, key: &'a str) -> Vec<&'a Section> {
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
    fn models_sections(&self) -> Vec<(usize, &'a str, String)> {
        let entries = self.inf.section("Manufacturer").map_or(&[][..], |section| &section.entries);
        let decorated = entries.iter().flat_map(|entry| {
            let (name, decorations) = entry.values.split_first().expect("an entry has a value");
            decorations.iter().map(move |d| (entry.line, d.as_str(), format!("{name}.{d}")))
        });
        decorated.collect()
    }

    fn model_entries(&self) -> Vec<Model<'a>> {
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

    fn services(&self, install: &Section) -> Vec<&'a Entry> {
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

    fn expect(&mut self, section: &Section, key: &str, wanted: &str, rule: Rule) {
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

    // [Manufacturer], Models, and what each installs.

    fn models(&mut self) {
        if let Some(manufacturer) = self.inf.section("Manufacturer") {
            for entry in manufacturer.entries.iter().filter(|entry| entry.values.len() < 2) {
                let text = "no Models section is decorated: NT$ARCH$.10.0...<build> is needed";
                self.report(entry.line, Rule::Decoration, text);
            }
        }
        for (line, decoration, _) in self.models_sections() {
            if build(decoration).is_none() {
                let text = format!("{decoration} is not NT$ARCH$.10.0...<build>");
                self.report(line, Rule::Decoration, text);
            }
        }
        self.sources();
        self.destinations();
        for model in self.model_entries() {
            let id = model.entry.value(1);
            if id != self.spec.hardware_id {
                let text = format!("{id} is not {}", self.spec.hardware_id);
                self.report(model.entry.line, Rule::HardwareId, text);
            }
            if let Some(install) = model.install {
                self.install(install, dirid(model.build));
            }
        }
    }

    fn install(&mut self, install: &'a Section, dirid: u32) {
        for (key, value) in self.spec.install {
            self.expect(install, key, value, Rule::InstallEntry);
        }
        let registry = self.registry(install);
        self.interfaces(install, &registry);
        self.keywords(install, &registry);
        self.copies(install, dirid);
        self.add_service(install, dirid);
        if self.spec.removal {
            self.removal(install);
        }
    }

    /// The registry entries that `section` leads to: root, subkey, name, flags, value.
    fn registry(&self, section: &'a Section) -> Vec<&'a Entry> {
        self.named(section, "AddReg").into_iter().flat_map(|section| &section.entries).collect()
    }

    fn interfaces(&mut self, install: &Section, registry: &[&Entry]) {
        let wanted = [
            ("Ndi", "Service", SERVICE, Rule::ServiceName),
            (r"Ndi\Interfaces", "UpperRange", self.spec.upper_range, Rule::Range),
            (r"Ndi\Interfaces", "LowerRange", self.spec.lower_range, Rule::Range),
        ];
        for (key, name, wanted, rule) in wanted {
            self.expect_registry(install, registry, (key, name), wanted, rule);
        }
    }

    fn expect_registry(
        &mut self,
        from: &Section,
        registry: &[&Entry],
        (key, name): (&str, &str),
        wanted: &str,
        rule: Rule,
    ) {
        match registry_value(registry, key, name) {
            Some(entry) if entry.value(4) == wanted => {}
            Some(entry) => {
                let text = format!("{key}, {name} is {:?}, not {wanted:?}", entry.value(4));
                self.report(entry.line, rule, text);
            }
            None => {
                let text = format!("[{}] leads to no {key}, {name}", from.name);
                self.report(from.line, rule, text);
            }
        }
    }

    // Keywords.

    fn keywords(&mut self, install: &Section, registry: &[&Entry]) {
        for keyword in self.spec.keywords {
            self.keyword(install, registry, keyword);
        }
        for entry in registry {
            let Some(name) = keyword_name(entry) else { continue };
            if !self.spec.keywords.iter().any(|keyword| keyword.name.eq_ignore_ascii_case(name)) {
                let text = format!("{name} is no keyword of the driver");
                self.report(entry.line, Rule::UnknownKeyword, text);
            }
            if !matches!(entry.value(3), "" | "0") {
                let text = format!("a keyword is a string, flags {}", entry.value(3));
                self.report(entry.line, Rule::Keyword, text);
            }
        }
    }

    fn keyword(&mut self, install: &Section, registry: &[&Entry], keyword: &Keyword) {
        let key = format!(r"Ndi\Params\{}", keyword.name);
        if !registry.iter().any(|entry| entry.value(1).eq_ignore_ascii_case(&key)) {
            let text = format!("[{}] leads to no {}", install.name, keyword.name);
            return self.report(install.line, Rule::Keyword, text);
        }
        if registry_value(registry, &key, "ParamDesc").is_none_or(|e| e.value(4).is_empty()) {
            let text = format!("{} has no ParamDesc", keyword.name);
            self.report(install.line, Rule::Keyword, text);
        }
        let (kind, optional) =
            if keyword.values.is_empty() { ("edit", "1") } else { ("enum", "0") };
        self.expect_registry(install, registry, (&key, "Type"), kind, Rule::Keyword);
        self.expect_registry(install, registry, (&key, "Optional"), optional, Rule::Keyword);
        if keyword.values.is_empty() {
            let limit = (key.as_str(), "LimitText");
            self.expect_registry(install, registry, limit, keyword.limit, Rule::Keyword);
        } else {
            self.keyword_values(install, registry, keyword);
        }
        let default = (key.as_str(), "Default");
        self.expect_registry(install, registry, default, keyword.default, Rule::KeywordDefault);
    }

    fn keyword_values(&mut self, install: &Section, registry: &[&Entry], keyword: &Keyword) {
        let key = format!(r"Ndi\Params\{}\enum", keyword.name);
        let of_enum = registry.iter().filter(|entry| entry.value(1).eq_ignore_ascii_case(&key));
        let entries: Vec<_> = of_enum.collect();
        for entry in entries.iter().filter(|entry| !keyword.values.contains(&entry.value(2))) {
            let text = format!("{} cannot be {:?}", keyword.name, entry.value(2));
            self.report(entry.line, Rule::Keyword, text);
        }
        for value in keyword.values {
            if !entries.iter().any(|entry| entry.value(2) == *value) {
                let line = entries.first().map_or(install.line, |entry| entry.line);
                let text = format!("{} does not offer {value:?}", keyword.name);
                self.report(line, Rule::Keyword, text);
            }
        }
    }

    // Files.

    /// Every file has a disk, and every disk and every file of the list is wanted.
    fn sources(&mut self) {
        let (Some(disks), Some(files)) =
            (self.inf.section("SourceDisksNames"), self.inf.section("SourceDisksFiles"))
        else {
            return;
        };
        let copied = self.copied();
        for entry in &copied {
            if files.value(entry.value(0)).is_none() {
                let text = format!("{} is not in [SourceDisksFiles]", entry.value(0));
                self.report(entry.line, Rule::CopySource, text);
            }
        }
        for file in &files.entries {
            let name = file.key.as_deref().unwrap_or_default();
            if !copied.iter().any(|entry| entry.value(0).eq_ignore_ascii_case(name)) {
                self.report(file.line, Rule::CopySource, format!("{name} is never copied"));
            }
            if disks.value(file.value(0)).is_none() {
                let text = format!("disk {} is not in [SourceDisksNames]", file.value(0));
                self.report(file.line, Rule::CopySource, text);
            }
        }
    }

    /// The entries of all sections that a CopyFiles names.
    fn copied(&self) -> Vec<&'a Entry> {
        let installs = self.model_entries().into_iter().filter_map(|model| model.install);
        let lists = installs.flat_map(|install| self.named(install, "CopyFiles"));
        lists.flat_map(|list| &list.entries).collect()
    }

    /// \[DestinationDirs\] speaks of sections that are copied, and of no others.
    fn destinations(&mut self) {
        let Some(dirs) = self.inf.section("DestinationDirs") else { return };
        let installs: Vec<_> = self.model_entries().iter().filter_map(|m| m.install).collect();
        for entry in &dirs.entries {
            let list = entry.key.as_deref().unwrap_or_default();
            let mut lists = installs.iter().flat_map(|install| install.names("CopyFiles"));
            if !lists.any(|(_, name)| name.eq_ignore_ascii_case(list)) {
                let text = format!("no CopyFiles names {list}");
                self.report(entry.line, Rule::CopyDestination, text);
            }
        }
    }

    fn copies(&mut self, install: &Section, dirid: u32) {
        let Some(dirs) = self.inf.section("DestinationDirs") else { return };
        for (line, list) in install.names("CopyFiles") {
            match dirs.value(list) {
                Some((_, dir)) if dir == dirid.to_string() => {}
                Some((line, dir)) => {
                    let text = format!("[{}] needs DIRID {dirid}, not {dir}", install.name);
                    self.report(line, Rule::Dirid, text);
                }
                None => {
                    let text = format!("{list} is not in [DestinationDirs]");
                    self.report(line, Rule::CopyDestination, text);
                }
            }
        }
    }

    // The service.

    fn add_service(&mut self, install: &'a Section, dirid: u32) {
        let services = self.services(install);
        if services.len() != 1 {
            let text = format!("[{}] adds {} services, not one", install.name, services.len());
            self.report(install.line, Rule::AddService, text);
        }
        for entry in services {
            self.service_name(entry.line, "AddService", entry.value(0));
            let flags = number(entry.value(1));
            if flags != Some(self.spec.service_flags) {
                let text =
                    format!("flags are {:?}, not {:#x}", entry.value(1), self.spec.service_flags);
                self.report(entry.line, Rule::AddService, text);
            }
            if let Some(service) = self.inf.section(entry.value(2)) {
                self.service(install, service, dirid);
            }
            match self.inf.section(entry.value(3)) {
                Some(log) => self.event_log(log),
                None => self.report(entry.line, Rule::EventLog, "the service has no event log"),
            }
        }
    }

    fn service_name(&mut self, line: usize, what: &str, name: &str) {
        if name != SERVICE {
            let text = format!("{what} is of {name}, and the driver's protocol is {SERVICE}");
            self.report(line, Rule::ServiceName, text);
        }
    }

    fn service(&mut self, install: &'a Section, service: &Section, dirid: u32) {
        for (key, value) in [("ServiceType", "1"), ("StartType", "3"), ("ErrorControl", "1")] {
            self.expect(service, key, value, Rule::ServiceEntry);
        }
        let binary = format!(r"%{dirid}%\{IMAGE}");
        let rule = match service.value("ServiceBinary") {
            Some((_, other)) if other.ends_with(IMAGE) => Rule::Dirid,
            _ => Rule::ServiceEntry,
        };
        self.expect(service, "ServiceBinary", &binary, rule);
        let lists = self.named(install, "CopyFiles");
        let mut files = lists.iter().flat_map(|list| &list.entries);
        if !files.any(|file| file.value(0).eq_ignore_ascii_case(IMAGE)) {
            let text = format!("[{}] does not copy {IMAGE}", install.name);
            self.report(install.line, Rule::CopySource, text);
        }
    }

    fn event_log(&mut self, log: &'a Section) {
        let registry = self.registry(log);
        let file = r"%%SystemRoot%%\System32\netevent.dll";
        for (name, flags, value) in
            [("EventMessageFile", 0x0002_0000, file), ("TypesSupported", 0x0001_0001, "7")]
        {
            self.expect_registry(log, &registry, ("", name), value, Rule::EventLog);
            if let Some(entry) = registry_value(&registry, "", name)
                && number(entry.value(3)) != Some(flags)
            {
                let text = format!("{name} has flags {}, not {flags:#010x}", entry.value(3));
                self.report(entry.line, Rule::EventLog, text);
            }
        }
    }

    fn removal(&mut self, install: &Section) {
        let name = format!("{}.Remove.Services", install.name);
        let Some(section) = self.inf.section(&name) else { return };
        let Some(entry) = section.keyed("DelService").next() else {
            let text = format!("[{name}] deletes no service");
            return self.report(section.line, Rule::Removal, text);
        };
        self.service_name(entry.line, "DelService", entry.value(0));
        // SPSVCINST_STOPSERVICE
        if number(entry.value(1)) != Some(0x200) {
            let text = format!("flags are {:?}, not 0x200: stop it first", entry.value(1));
            self.report(entry.line, Rule::Removal, text);
        }
    }

    // Both files.

    /// Whichever of the two is installed last writes the service; so both must write the same.
    fn pair(&mut self, vnic: &'a Inf) {
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

/// The build in `NT$ARCH$.10.0...build`.
fn build(decoration: &str) -> Option<u32> {
    decoration.strip_prefix("NT$ARCH$.10.0...")?.parse().ok()
}

/// The DIRID of a driver that some build of Windows can load.
fn dirid(build: u32) -> u32 {
    if build < DRIVER_STORE_BUILD { 12 } else { 13 }
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

/// Decimal or hexadecimal; nothing is zero.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.is_empty() => Some(0),
        None => text.parse().ok(),
    }
}

fn registry_value<'a>(registry: &[&'a Entry], key: &str, name: &str) -> Option<&'a Entry> {
    let is = |text: &str, wanted: &str| text.eq_ignore_ascii_case(wanted);
    registry.iter().find(|entry| is(entry.value(1), key) && is(entry.value(2), name)).copied()
}

/// The keyword that an entry under `Ndi\Params` belongs to.
fn keyword_name(entry: &Entry) -> Option<&str> {
    let mut path = entry.value(1).split('\\');
    let under_params =
        path.next()?.eq_ignore_ascii_case("Ndi") && path.next()?.eq_ignore_ascii_case("Params");
    path.next().filter(|_| under_params)
}
