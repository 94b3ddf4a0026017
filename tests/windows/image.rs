//! The Windows image as a file: built and linked here, taken apart, never run. `wine.rs` runs it.
//!
//! Goal: what Windows' loader, its code integrity and a driver's IRQL demand of the file holds.
//! Method: `build` makes it, with declarations by hand and with those of `wdk-sys`; a PE reader
//! and a disassembler that know nothing of the build look at both.

mod resources;
mod stack;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use goblin::pe::resource::VersionField;
use iced_x86::{CpuidFeature, Decoder, DecoderOptions, EncodingKind, Instruction};
use object::pe::*;
use object::read::pe::{Import, PeFile64};
use object::{Architecture, LittleEndian as LE, Object as _};

/// The exit status by which the build says that this machine lacks something.
const CANNOT: i32 = 77;
/// By [the format's page](https://learn.microsoft.com/windows/win32/debug/pe-format).
const IMAGE_DEBUG_TYPE_EX_DLLCHARACTERISTICS: u32 = 20;
const IMAGE_DLLCHARACTERISTICS_EX_CET_COMPAT: u16 = 1;

/// Goal: a 64-bit native image of a driver, relocatable, protected, checked, with a right checksum.
#[test]
fn it_is_a_kernel_image() {
    for image in Image::x86_64() {
        let pe = image.parse();
        check_headers(image, &pe, IMAGE_FILE_MACHINE_AMD64);
        let sections: Vec<_> = pe
            .section_table()
            .iter()
            .map(|section| format!("{} {}", name_of(section), section.virtual_size.get(LE)))
            .collect();
        println!("{}: {} bytes; {}", image.path.display(), image.bytes.len(), sections.join(", "));
    }
}

/// Goal: the same for ARM64, of which nothing here executes an instruction.
#[test]
fn it_is_a_kernel_image_on_arm64_too() {
    let others = [Kind::Client, Kind::Flight].map(|kind| Image::build("aarch64", kind));
    for image in Image::aarch64().into_iter().chain(others.iter().flatten()) {
        let pe = image.parse();
        check_headers(image, &pe, IMAGE_FILE_MACHINE_ARM64);
        assert_eq!(imports(&pe), declared(image.kind));
        println!("{}: {} bytes", image.path.display(), image.bytes.len());
    }
}

/// Goal: nothing can be paged out, nothing can be both written and executed.
#[test]
fn its_memory_is_resident_and_protected() {
    for image in Image::x86_64() {
        for section in image.parse().section_table().iter() {
            let (name, flags) = (name_of(section), section.characteristics.get(LE));
            let has = |flag| flags & flag != 0;
            assert!(
                !(has(IMAGE_SCN_MEM_WRITE) && has(IMAGE_SCN_MEM_EXECUTE)),
                "{name}: {flags:#x}"
            );
            assert!(has(IMAGE_SCN_MEM_READ), "{name} cannot be read: {flags:#x}");
            // The loader is done with what is discardable before the driver runs.
            assert!(
                has(IMAGE_SCN_MEM_NOT_PAGED) || has(IMAGE_SCN_MEM_DISCARDABLE),
                "{name}: {flags:#x}"
            );
            assert!(!name.starts_with("PAGE"), "{name} is pageable by its name");
        }
    }
}

/// Goal: it imports what `windows/imports` says, or the list of its own that another image has.
#[test]
fn its_imports_are_the_declared_ones() {
    for image in Image::x86_64() {
        let (found, declared) = (imports(&image.parse()), declared(image.kind));
        let added: Vec<_> = found.difference(&declared).collect();
        let gone: Vec<_> = declared.difference(&found).collect();
        assert!(
            added.is_empty() && gone.is_empty(),
            "{:?}: imported but not in tests/windows/imports: {added:#?}\nlisted there but not imported: {gone:#?}",
            image.kind
        );
    }
}

/// Goal: an indirect call of Windows into the image finds its target in the guard's table.
#[test]
fn control_flow_guard_has_its_table() {
    for image in Image::x86_64() {
        let pe = image.parse();
        let Guard { functions, .. } = Guard::of(image, &pe);
        let config = image.directory(&pe, IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
        let word = |at: usize| u64::from_le_bytes(config[at..at + 8].try_into().unwrap());
        let code = pe.code_range();
        assert!(
            functions.iter().all(|function| code.contains(function)),
            "a function outside the code"
        );
        let entry = pe.nt_headers().optional_header.address_of_entry_point.get(LE);
        assert!(functions.contains(&entry), "the loader calls the entry point indirectly");
        // The slots that the loader fills: both must point at code until then.
        for slot in [0x70, 0x78] {
            let target = image.at(&pe, pe.relative_address(word(slot)), 8);
            let target = pe.relative_address(u64::from_le_bytes(target.try_into().unwrap()));
            assert!(code.contains(&target), "guard slot {slot:#x} holds {target:#x}");
        }
        println!("{} functions may be called indirectly", functions.len());
    }
}

/// Goal: no instruction that a kernel forbids or a CPU may lack: no x87, no MMX, no AVX.
#[test]
fn its_instructions_are_those_of_a_kernel() {
    for image in Image::x86_64() {
        let pe = image.parse();
        let code = pe.code_range();
        let bytes = image.at(&pe, code.start, code.len());
        let mut decoder = Decoder::with_ip(64, bytes, code.start.into(), DecoderOptions::NONE);
        let (mut instructions, mut clmul) = (0, 0);
        let mut features = BTreeSet::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            assert!(!instruction.is_invalid(), "no instruction at {:#x}", instruction.ip());
            assert!(is_allowed(&instruction), "{:#x}: {instruction:?}", instruction.ip());
            instructions += 1;
            clmul += usize::from(instruction.cpuid_features().contains(&CpuidFeature::PCLMULQDQ));
            features
                .extend(instruction.cpuid_features().iter().map(|feature| format!("{feature:?}")));
        }
        assert!(clmul > 0 || !image.is_driver(), "the ICRC is computed without PCLMULQDQ");
        println!("{instructions} instructions, {clmul} PCLMULQDQ, of {features:?}");
    }
}

/// Legacy encoding only: VEX, EVEX and XOP reach registers that the kernel does not save.
fn is_allowed(instruction: &Instruction) -> bool {
    let forbidden = |feature: &CpuidFeature| {
        let name = format!("{feature:?}");
        name.starts_with("FPU")
            || name.contains("MMX")
            || name.starts_with("AVX")
            || name.contains("3DNOW")
    };
    instruction.encoding() == EncodingKind::Legacy
        && !instruction.cpuid_features().iter().any(forbidden)
}

/// Goal: Windows' dialogs and crash dumps can name the image and its version, as a reader tells that knows nothing of
/// the writer.
#[test]
fn it_says_its_version() {
    for image in Image::all() {
        let pe = goblin::pe::PE::parse(&image.bytes).expect("a PE image");
        let version = pe.resource_data.and_then(|resources| resources.version_info);
        let version = version.expect("a version resource");
        let fixed = version.fixed_info.expect("VS_FIXEDFILEINFO");
        assert!(fixed.is_valid());
        // Not by the reader's own `file_version`, which takes the date for it (goblin 0.10.7).
        let file = VersionField::from_ms_ls(fixed.file_version_ms, fixed.file_version_ls);
        let numbers = [file, fixed.product_version()].map(|of| of.to_string());
        assert_eq!(numbers, [concat!(env!("CARGO_PKG_VERSION"), ".0"); 2]);
        let texts = version.string_info;
        assert_eq!(texts.original_filename().as_deref(), Some("ndkrocev2.sys"));
        for text in [texts.file_version(), texts.product_version()] {
            assert_eq!(text.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        }
        for text in [texts.company_name(), texts.file_description(), texts.product_name()] {
            assert!(text.is_some_and(|text| !text.is_empty()), "{texts:?}");
        }
    }
}

/// Goal: each image claims to fit a shadow stack, where the processor may have one.
#[test]
fn they_are_compatible_with_shadow_stacks() {
    for image in Image::x86_64().chain(Image::aarch64()) {
        let claims = image.extended_characteristics() & IMAGE_DLLCHARACTERISTICS_EX_CET_COMPAT;
        assert_eq!(claims != 0, image.is_x86_64(), "{}", image.path.display());
    }
}

/// Goal: neither the image nor its symbols say where they were built, so that the same sources make the same files.
/// `release.rs` makes them twice.
#[test]
fn it_does_not_say_where_it_was_built() {
    let names = |bytes: &[u8]| {
        // Windows' own separators are among them.
        let text = String::from_utf8_lossy(bytes).replace('\\', "/");
        let found = |of: &str| text.contains(of);
        // rustc's folder for the files of one linking has another name each time.
        [tests::ROOT.trim_end_matches("/tests/.."), ".cargo/", ".rustup/", "deps/rustc"].map(found)
    };
    assert_eq!(names(br"in x/deps\rustcAbCdEf\symbols.o"), [false, false, false, true]);
    for image in Image::all().filter(|image| image.kind == Kind::Plain) {
        let symbols = fs::read(image.path.with_extension("pdb")).expect("symbols");
        assert_eq!(names(&image.bytes), [false; 4], "the image {}", image.path.display());
        assert_eq!(names(&symbols), [false; 4], "the symbols of {}", image.path.display());
    }
}

/// Goal: the checks above refuse an image that is wrong.
#[test]
fn the_checks_tell_right_from_wrong() {
    let decode = |bytes: &[u8]| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    assert!(is_allowed(&decode(&[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0x11])), "pclmulqdq");
    assert!(is_allowed(&decode(&[0x0f, 0x10, 0x01])), "movups");
    for (what, bytes) in [
        ("fld", &[0xd9, 0x00][..]),
        ("emms", &[0x0f, 0x77]),
        ("paddb mm", &[0x0f, 0xfc, 0xc1]),
        ("vmovups", &[0xc5, 0xf8, 0x10, 0x01]),
        ("vpclmulqdq", &[0xc4, 0xe3, 0x79, 0x44, 0xc1, 0x11]),
        ("vmovdqu64 zmm", &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x01]),
    ] {
        assert!(!is_allowed(&decode(bytes)), "{what}");
    }
    let mut bytes = vec![0; 256];
    bytes[0..4].copy_from_slice(&[1, 2, 3, 4]);
    let right = checksum(&bytes, 128);
    bytes[255] ^= 1;
    assert_ne!(right, checksum(&bytes, 128));
    bytes[128] ^= 1;
    bytes[255] ^= 1;
    assert_eq!(right, checksum(&bytes, 128), "the field itself does not count");
}

fn check_headers(image: &Image, pe: &PeFile64<'_>, machine: u16) {
    let (file, optional) = (&pe.nt_headers().file_header, &pe.nt_headers().optional_header);
    assert_eq!(file.machine.get(LE), machine);
    assert_eq!(optional.subsystem.get(LE), IMAGE_SUBSYSTEM_NATIVE);
    let flags = optional.dll_characteristics.get(LE);
    for (name, flag) in [
        ("DYNAMIC_BASE", IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE),
        ("FORCE_INTEGRITY", IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY),
        ("NX_COMPAT", IMAGE_DLLCHARACTERISTICS_NX_COMPAT),
        ("GUARD_CF", IMAGE_DLLCHARACTERISTICS_GUARD_CF),
    ] {
        assert!(flags & flag != 0, "{name} is not among {flags:#x}");
    }
    assert_eq!(file.characteristics.get(LE) & IMAGE_FILE_RELOCS_STRIPPED, 0);
    assert!(!image.directory(pe, IMAGE_DIRECTORY_ENTRY_BASERELOC).is_empty(), "no relocations");
    let entry = optional.address_of_entry_point.get(LE);
    assert!(pe.code_range().contains(&entry), "the entry point {entry:#x} is outside the code");
    let exports = pe.exports().expect("an export table");
    let exported = |name: &str| exports.iter().find(|export| export.name() == name.as_bytes());
    let start = exported("DriverEntry").expect("an exported entry point").address();
    assert_eq!(start - optional.image_base.get(LE), u64::from(entry));
    let others = exports.iter().filter(|export| export.name() != b"DriverEntry").count();
    // `wdk-sys` stands in for parts of a C runtime by functions that it cannot hide.
    assert!(image.kind == Kind::Wdk || others == 0, "exports: {exports:?}");
    let at = image.optional_header(pe) + 64;
    assert_eq!(optional.check_sum.get(LE), checksum(&image.bytes, at), "checksum");
}

/// The checksum of a PE image: the sum of its 16-bit words with the carries folded in, plus its
/// length. The field itself, at `field`, counts as zero.
fn checksum(bytes: &[u8], field: usize) -> u32 {
    let mut sum = 0_u32;
    for (index, word) in bytes.chunks(2).enumerate() {
        if (field..field + 4).contains(&(2 * index)) {
            continue;
        }
        sum += u32::from(word[0]) | u32::from(word.get(1).copied().unwrap_or(0)) << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum + bytes.len() as u32
}

/// `module!function`, one line each.
fn imports(pe: &PeFile64<'_>) -> BTreeSet<String> {
    let table = pe.import_table().expect("a sound import table").expect("an import table");
    let mut descriptors = table.descriptors().expect("import descriptors");
    let mut all = BTreeSet::new();
    while let Some(descriptor) = descriptors.next().expect("an import descriptor") {
        let module = table.name(descriptor.name.get(LE)).expect("a module's name");
        let module = String::from_utf8_lossy(module).to_lowercase();
        let mut thunks =
            table.thunks(descriptor.original_first_thunk.get(LE)).expect("import thunks");
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>().expect("an import thunk") {
            match table.import::<ImageNtHeaders64>(thunk).expect("an import") {
                Import::Name(_, name) => {
                    all.insert(format!("{module}!{}", String::from_utf8_lossy(name)));
                }
                Import::Ordinal(ordinal) => panic!("{module}: imported by ordinal {ordinal}"),
            }
        }
    }
    all
}

fn declared(kind: Kind) -> BTreeSet<String> {
    // Every import, and no other: each stands for a promise of some Windows to have it.
    let list = match kind {
        Kind::Plain | Kind::Wdk => include_str!("imports"),
        Kind::Client => include_str!("imports-client"),
        Kind::Flight => include_str!("imports-flight"),
    };
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    // What the crate `wdk` prints with.
    let more = (kind == Kind::Wdk).then_some("ntoskrnl.exe!DbgPrint");
    lines.chain(more).map(str::to_owned).collect()
}

fn name_of(section: &ImageSectionHeader) -> String {
    String::from_utf8_lossy(section.raw_name()).into_owned()
}

/// What was built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// The driver, with declarations by hand.
    Plain,
    /// The driver, with those of `wdk-sys`.
    Wdk,
    /// The NetAdapterCx client.
    Client,
    /// The flight consumer.
    Flight,
}

/// The file and what is in it.
struct Image {
    path: PathBuf,
    kind: Kind,
    bytes: Vec<u8>,
}

impl Image {
    /// All builds for x86-64; without one that this machine cannot make, which is said.
    fn x86_64() -> impl Iterator<Item = &'static Self> {
        static PLAIN: LazyLock<Option<Image>> =
            LazyLock::new(|| Image::build("x86_64", Kind::Plain));
        static WDK: LazyLock<Option<Image>> = LazyLock::new(|| Image::build("x86_64", Kind::Wdk));
        static CLIENT: LazyLock<Option<Image>> =
            LazyLock::new(|| Image::build("x86_64", Kind::Client));
        static FLIGHT: LazyLock<Option<Image>> =
            LazyLock::new(|| Image::build("x86_64", Kind::Flight));
        [&PLAIN, &WDK, &CLIENT, &FLIGHT].into_iter().filter_map(|image| image.as_ref())
    }

    /// The driver for ARM64, where it can be made.
    fn aarch64() -> Option<&'static Self> {
        static IMAGE: LazyLock<Option<Image>> =
            LazyLock::new(|| Image::build("aarch64", Kind::Plain));
        IMAGE.as_ref()
    }

    /// The driver, in all builds.
    fn all() -> impl Iterator<Item = &'static Self> {
        Self::x86_64().filter(|image| image.is_driver()).chain(Self::aarch64())
    }

    fn is_driver(&self) -> bool {
        matches!(self.kind, Kind::Plain | Kind::Wdk)
    }

    fn is_x86_64(&self) -> bool {
        self.parse().architecture() == Architecture::X86_64
    }

    /// What the debug directory says beside the flags of the optional header.
    fn extended_characteristics(&self) -> u16 {
        let pe = self.parse();
        let directory = self.directory(&pe, IMAGE_DIRECTORY_ENTRY_DEBUG);
        let entries = object::pod::slice_from_all_bytes::<ImageDebugDirectory>(directory);
        let entry =
            |of: &&ImageDebugDirectory| of.typ.get(LE) == IMAGE_DEBUG_TYPE_EX_DLLCHARACTERISTICS;
        let Some(entry) = entries.expect("an array").iter().find(entry) else { return 0 };
        let flags = self.at(&pe, entry.address_of_raw_data.get(LE), 2);
        u16::from_le_bytes(flags.try_into().expect("two bytes"))
    }

    fn build(arch: &str, kind: Kind) -> Option<Self> {
        let arguments = match kind {
            // Its build dependencies take longest: `.ci/run` has a day for it.
            Kind::Wdk if env::var_os("WITHOUT_WDK").is_some() => return None,
            Kind::Plain => vec![arch],
            Kind::Wdk => vec![arch, "wdk"],
            Kind::Client => vec![arch, "client"],
            Kind::Flight => vec![arch, "flight"],
        };
        let what = arguments.join(" ");
        let root = Path::new(tests::ROOT);
        let built =
            Command::new(root.join("tests/windows/build")).args(arguments).output().expect("bash");
        let said = String::from_utf8_lossy(&built.stderr);
        if built.status.code() == Some(CANNOT) {
            // Past the test harness, which shows the output of failed tests only.
            let _ = writeln!(io::stderr(), "skipped: the Windows image ({what}): {}", said.trim());
            return None;
        }
        assert!(built.status.success(), "tests/windows/build {what}:\n{said}");
        let path = root.join(String::from_utf8_lossy(&built.stdout).trim());
        let bytes = fs::read(&path).expect("the image was built");
        Some(Self { path, kind, bytes })
    }

    fn parse(&self) -> PeFile64<'_> {
        let pe = PeFile64::parse(&*self.bytes).expect("a PE32+ image");
        assert!(matches!(pe.architecture(), Architecture::X86_64 | Architecture::Aarch64));
        pe
    }

    /// Where the optional header begins in the file.
    fn optional_header(&self, pe: &PeFile64<'_>) -> usize {
        let nt_headers = pe.dos_header().e_lfanew.get(LE) as usize;
        nt_headers + 4 + size_of::<ImageFileHeader>()
    }

    /// The bytes of a data directory; none if it is absent.
    fn directory(&self, pe: &PeFile64<'_>, index: usize) -> &[u8] {
        let Some(directory) = pe.data_directories().get(index) else { return &[] };
        self.at(pe, directory.virtual_address.get(LE), directory.size.get(LE) as usize)
    }

    /// `len` bytes at an RVA.
    fn at(&self, pe: &PeFile64<'_>, rva: u32, len: usize) -> &[u8] {
        let (offset, room) = pe
            .section_table()
            .pe_file_range_at(rva)
            .unwrap_or_else(|| panic!("no bytes at {rva:#x}"));
        assert!(len <= room as usize, "{len} bytes at {rva:#x} leave their section");
        &self.bytes[offset as usize..][..len]
    }
}

impl stack::frames::At for Image {
    fn at(&self, rva: u32, len: usize) -> &[u8] {
        self.at(&self.parse(), rva, len)
    }
}

/// Control Flow Guard, by the load configuration: `IMAGE_LOAD_CONFIG_DIRECTORY64`.
struct Guard {
    /// Functions that may be called through a pointer.
    functions: BTreeSet<u32>,
    /// The slot of the function that judges a pointer before it is called (ARM64).
    check: u32,
    /// The slot of the function that judges and calls (x86-64).
    dispatch: u32,
}

impl Guard {
    fn of(image: &Image, pe: &PeFile64<'_>) -> Self {
        let config = image.directory(pe, IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
        let word = |at: usize| u64::from_le_bytes(config[at..at + 8].try_into().unwrap());
        // The check's slot 0x70, the dispatch's 0x78, function table 0x80, count 0x88, flags 0x90.
        let flags = word(0x90) as u32;
        for flag in [IMAGE_GUARD_CF_INSTRUMENTED, IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT] {
            assert!(flags & flag != 0, "guard flags {flags:#x}");
        }
        // A function is its RVA and as many bytes as the flags' top four bits tell.
        let stride = 4 + (flags >> 28) as usize;
        let count = word(0x88) as usize;
        let table = image.at(pe, pe.relative_address(word(0x80)), count * stride);
        let functions: BTreeSet<u32> = table
            .chunks_exact(stride)
            .map(|entry| u32::from_le_bytes(entry[..4].try_into().unwrap()))
            .collect();
        assert_eq!(functions.len(), count, "the table is sorted and has no function twice");
        let [check, dispatch] = [0x70, 0x78].map(|at| pe.relative_address(word(at)));
        Self { functions, check, dispatch }
    }
}

/// Addresses within the image.
trait Addresses {
    fn code_range(&self) -> std::ops::Range<u32>;
    fn relative_address(&self, address: u64) -> u32;
}

impl Addresses for PeFile64<'_> {
    /// Of the one section that is executed.
    fn code_range(&self) -> std::ops::Range<u32> {
        let code: Vec<_> = self
            .section_table()
            .iter()
            .filter(|section| section.characteristics.get(LE) & IMAGE_SCN_MEM_EXECUTE != 0)
            .map(|section| {
                let start = section.virtual_address.get(LE);
                start..start + section.virtual_size.get(LE)
            })
            .collect();
        assert_eq!(code.len(), 1, "{code:x?}");
        code[0].clone()
    }

    fn relative_address(&self, address: u64) -> u32 {
        let base = self.nt_headers().optional_header.image_base.get(LE);
        u32::try_from(address - base).expect("an address in the image")
    }
}
