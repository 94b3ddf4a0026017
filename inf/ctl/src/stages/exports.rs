//! What a Windows exports to drivers, by the export tables of its own files, and what the image wants of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::LittleEndian as LE;
use object::pe::ImageNtHeaders64;
use object::read::pe::{Import, PeFile64};

use crate::exit::Exit;
use crate::machine::IMAGE;
use crate::verify::Verdict;

/// A processor by the machine type of a PE header.
fn processor(machine: u16) -> String {
    match machine {
        object::pe::IMAGE_FILE_MACHINE_AMD64 => "x86_64".into(),
        object::pe::IMAGE_FILE_MACHINE_ARM64 => "aarch64".into(),
        other => format!("{other:#06x}"),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// The folder with the image [default: that of this program]
    #[arg(long)]
    package: Option<PathBuf>,
    /// The folder of Windows' own files [default: System32]
    #[arg(long)]
    system: Option<PathBuf>,
    /// The file that gets a line `processor module!name` for each
    #[arg(long, default_value = "exports")]
    out: PathBuf,
}

/// Writes the table, in order, as a later commit can take it in.
pub(super) fn list(asked: &Asked, say: &mut dyn FnMut(String)) -> Result<Exit> {
    let image = Image::read(&crate::package_folder(asked.package.as_ref())?.join(IMAGE))?;
    let system = folder(asked.system.as_deref())?;
    let mut text = String::new();
    for module in image.imports.keys() {
        let file = find(&system, module)?;
        let exporter = Image::read(&file)?;
        for name in &exporter.exports {
            text += &format!("{} {module}!{name}\n", exporter.processor);
        }
        say(format!("{}: {} names", file.display(), exporter.exports.len()));
    }
    std::fs::write(&asked.out, text).with_context(|| asked.out.display().to_string())?;
    Ok(Exit::Done)
}

/// Whether this Windows has each function that the image imports.
pub(super) fn judge(image: &Path, system: Option<&Path>) -> Result<Verdict> {
    compare(image, &folder(system)?)
}

/// System32, but for tests.
fn folder(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = asked {
        return Ok(folder.into());
    }
    let windows = std::env::var_os("SystemRoot").context("there is no folder of Windows")?;
    Ok(Path::new(&windows).join("System32"))
}

fn compare(image: &Path, system: &Path) -> Result<Verdict> {
    let image = Image::read(image)?;
    ensure!(!image.imports.is_empty(), "it imports nothing");
    let (mut missing, mut found) = (Vec::new(), 0);
    for (module, names) in &image.imports {
        let exporter = Image::read(&find(system, module)?)?;
        ensure!(
            exporter.processor == image.processor,
            "the image is for {}, and {module} for {}",
            image.processor,
            exporter.processor
        );
        found += names.len();
        let lacks = names.difference(&exporter.exports);
        missing.extend(lacks.map(|name| format!("{module}!{name}")));
    }
    ensure!(missing.is_empty(), "this Windows has no {}", missing.join(", "));
    Ok(Verdict::Passed(format!("all {found} of {} modules", image.imports.len())))
}

/// Drivers lie in a folder of their own.
fn find(system: &Path, module: &str) -> Result<PathBuf> {
    let mut files = [system.join(module), system.join("drivers").join(module)].into_iter();
    files.find(|file| file.exists()).with_context(|| format!("this Windows has no {module}"))
}

/// An image's tables of names.
struct Image {
    processor: String,
    /// By the module, in small letters.
    imports: BTreeMap<String, BTreeSet<String>>,
    exports: BTreeSet<String>,
}

impl Image {
    fn read(file: &Path) -> Result<Self> {
        let context = || file.display().to_string();
        let bytes = std::fs::read(file).with_context(context)?;
        Self::parse(&bytes).with_context(context)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let pe = PeFile64::parse(bytes)?;
        let exports = match pe.export_table()? {
            Some(table) => table.exports()?,
            None => Vec::new(),
        };
        let names = exports.iter().filter_map(|export| export.name);
        Ok(Self {
            processor: processor(pe.nt_headers().file_header.machine.get(LE)),
            imports: imports(&pe)?,
            exports: names.map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        })
    }
}

fn imports(pe: &PeFile64<'_>) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut imports = BTreeMap::<_, BTreeSet<_>>::new();
    let Some(table) = pe.import_table()? else { return Ok(imports) };
    let mut descriptors = table.descriptors()?;
    while let Some(descriptor) = descriptors.next()? {
        let module = String::from_utf8_lossy(table.name(descriptor.name.get(LE))?).to_lowercase();
        let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE))?;
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>()? {
            let name = match table.import::<ImageNtHeaders64>(thunk)? {
                Import::Name(_, name) => String::from_utf8_lossy(name).into_owned(),
                Import::Ordinal(ordinal) => format!("#{ordinal}"),
            };
            imports.entry(module.clone()).or_default().insert(name);
        }
    }
    Ok(imports)
}
