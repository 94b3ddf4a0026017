//! The import libraries of mingw-w64: each names a module of Windows and the functions that it exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

/// Those of the modules that a driver imports from.
const LIBRARIES: [&str; 4] = ["ntoskrnl", "hal", "ndis", "netio"];
const FOLDER: &str = "/usr/x86_64-w64-mingw32/lib";

/// The modules that have a function, by its name. None where mingw-w64 is not installed.
pub(crate) fn modules() -> Option<BTreeMap<String, BTreeSet<String>>> {
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for library in LIBRARIES {
        let bytes = fs::read(Path::new(FOLDER).join(format!("lib{library}.a"))).ok()?;
        let (module, functions) = read(&bytes);
        for function in functions {
            all.entry(function).or_default().insert(module.clone());
        }
    }
    Some(all)
}

/// The module that an import library is of, and what it imports.
fn read(bytes: &[u8]) -> (String, BTreeSet<String>) {
    let (mut module, mut functions) = (None, BTreeSet::new());
    for member in ArchiveFile::parse(bytes).expect("an archive").members() {
        // Members begin at even places; a copy is aligned.
        let data = member.expect("a member").data(bytes).expect("its bytes").to_vec();
        let object = object::File::parse(&*data).expect("an object");
        for symbol in object.symbols().filter(|symbol| symbol.is_definition()) {
            let name = symbol.name().expect("a name");
            functions.extend(name.strip_prefix("__imp_").map(str::to_owned));
        }
        // The section of the last member, which holds the module's name and nothing else.
        let name = object.section_by_name(".idata$7").and_then(|section| section.data().ok());
        let name = name.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        module =
            module.or(name.map(|name| name.trim_end_matches('\0').to_lowercase()).filter(|name| {
                name.ends_with(".exe") || name.ends_with(".sys") || name.ends_with(".dll")
            }));
    }
    (module.expect("an import library names its module"), functions)
}
