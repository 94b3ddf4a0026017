//! What a Models section leads to: the adapter's registry, its keywords, the files, the service.

use crate::lint::{Lint, Rule, build};
use crate::parse::{Entry, Section};
use crate::spec::{IMAGE, Keyword, SERVICE};

/// From this build of Windows on, a protocol may run from the driver store.
const DRIVER_STORE_BUILD: u32 = 25319;

impl<'a> Lint<'a> {
    pub(crate) fn models(&mut self) {
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
    pub(crate) fn registry(&self, section: &'a Section) -> Vec<&'a Entry> {
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
        let (kind, optional) = match keyword {
            Keyword { range: None, values: [], .. } => ("edit", "1"),
            Keyword { range: None, .. } => ("enum", "0"),
            Keyword { .. } => ("int", "0"),
        };
        self.expect_registry(install, registry, (&key, "Type"), kind, Rule::Keyword);
        self.expect_registry(install, registry, (&key, "Optional"), optional, Rule::Keyword);
        if let Some([min, max]) = keyword.range {
            for (name, wanted) in [("Min", min), ("Max", max), ("Step", "1")] {
                self.expect_registry(install, registry, (&key, name), wanted, Rule::Keyword);
            }
        } else if keyword.values.is_empty() {
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
                Some(log) => self.event_log(log, dirid),
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

    /// The texts are those of NDIS, and those in the driver's own image.
    fn event_log(&mut self, log: &'a Section, dirid: u32) {
        let registry = self.registry(log);
        let files = format!(r"%%SystemRoot%%\System32\netevent.dll;%{dirid}%\{IMAGE}");
        for (name, flags, value) in
            [("EventMessageFile", 0x0002_0000, &*files), ("TypesSupported", 0x0001_0001, "7")]
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
}

/// The DIRID of a driver that some build of Windows can load.
fn dirid(build: u32) -> u32 {
    if build < DRIVER_STORE_BUILD { 12 } else { 13 }
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
