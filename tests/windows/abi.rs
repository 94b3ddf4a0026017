//! The declarations that the driver makes by hand, beside declarations that others made.
//!
//! Goal: each constant, structure, function and module of an import is that of Windows.
//! Method: the sources are read; each name is looked up in `windows-sys`, which Microsoft generates from its own
//! metadata, and in the headers and import libraries of mingw-w64. The lists are the sources themselves: a new
//! declaration is compared, or stands with its reason in `abi/alone`.

#[path = "abi/headers.rs"]
mod headers;
#[path = "abi/libraries.rs"]
mod libraries;
#[path = "abi/meaning.rs"]
mod meaning;
#[path = "abi/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use headers::Verdict;
use source::{AARCH64, Aggregate, Declarations, Named, X86_64};

/// Names that nobody else declares, under their reasons.
const ALONE: &str = include_str!("abi/alone");
/// Every import of the image: `module!function`.
const IMPORTS: &str = include_str!("imports");
/// The same of the flight consumer.
const FLIGHT_IMPORTS: &str = include_str!("imports-flight");
/// Imports that `windows-sys` does not have for ARM64, under the sources that do.
const ARM64: &str = include_str!("abi/arm64");

/// Goal: each constant has the value that its name has in Windows; each member of a structure its offset and size;
/// each function that is imported or that Windows calls its arguments; and each import names the module that has it
/// in every Windows (Server 2019's kernel, say, has no function of the HAL).
#[test]
fn declarations_are_those_of_windows() {
    let (ours, theirs) = (Declarations::of_the_driver(), Declarations::of_windows_sys(X86_64));
    let imports = all_imports().map(str::to_owned).chain(ours.imports()).collect();
    let mut names = BTreeSet::new();
    let mut complaints = Vec::new();
    for (of, claims) in [
        ("constants", constants(&ours, &theirs)),
        ("members and sizes of structures", structures(&ours, &theirs)),
        ("functions", functions(&ours, &theirs)),
        ("modules of imports", modules(&imports, &theirs)),
    ] {
        names.extend(
            claims.iter().flat_map(|claim| [claim.name.clone(), owner(&claim.name).into()]),
        );
        complaints.extend(judge(of, &claims));
    }
    let reasons = ALONE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for name in reasons.filter(|name| !name.ends_with('*') && !names.contains(*name)) {
        complaints.push(format!("{name} is declared no more, and stands in abi/alone"));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Goal: the kernel of ARM64 has each import, too, as nothing here can load that image.
/// Method: `windows-sys` has a function for each processor, or says for which; what it lacks stands in `abi/arm64`, and nothing else.
#[test]
fn arm64_has_each_import() {
    let theirs = Declarations::of_windows_sys(AARCH64);
    let lacking: BTreeSet<_> = all_imports().filter(|import| !is_in(import, &theirs)).collect();
    let told = ARM64.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(lacking, told, "imports that windows-sys lacks for ARM64, and abi/arm64");
}

/// What any of the images imports.
fn all_imports() -> impl Iterator<Item = &'static str> {
    let lines = [IMPORTS, FLIGHT_IMPORTS].into_iter().flat_map(str::lines);
    lines.filter(|line| !line.starts_with('#'))
}

/// Whether these have a function of the kernel by this name: `module!function`.
fn is_in(import: &str, theirs: &Declarations) -> bool {
    let (_, name) = import.split_once('!').expect("module!function");
    let linked = theirs.functions.get(name).into_iter().flatten();
    linked.map(|one| &*one.module).any(|module| !USER_MODE.contains(&module))
}

#[test]
fn a_function_of_another_processor_is_none_of_arm64() {
    let text = r#"
        #[cfg(target_arch = "x86_64")]
        windows_link::link!("ntoskrnl.exe" "system" fn One(level : u8) -> u8);
        #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
        windows_link::link!("ntoskrnl.exe" "system" fn Both(level : u8) -> u8);
        windows_link::link!("ntdll.dll" "system" fn User(level : u8) -> u8);
    "#;
    let arm64 = Declarations::parse_for(AARCH64, text);
    let found = ["One", "Both", "User"].map(|name| is_in(&format!("ntoskrnl.exe!{name}"), &arm64));
    assert_eq!(found, [false, true, false]);
}

/// Goal: what this test computes of a structure is what the compiler does.
#[test]
fn layouts_are_those_of_the_compiler() {
    let ours = Declarations::of_the_driver();
    assert!(ours.layouts.len() > 40, "layout! is read");
    for layout in &ours.layouts {
        let ty = syn::parse_str(&layout.name).expect("a name");
        let extent = ours.extent(&ty).unwrap_or_else(|| panic!("the size of {}", layout.name));
        assert_eq!(extent.size, layout.size, "{}", layout.name);
        let Some(Named::Aggregate(aggregate)) = ours.types.get(&layout.name) else { continue };
        let members = ours.members(aggregate).expect("members");
        for (member, offset) in &layout.offsets {
            assert_eq!(members[&member.to_lowercase()].0, *offset, "{}.{member}", layout.name);
        }
    }
}

/// Goal: each kind of mistake is found, and only that.
#[test]
fn mistakes_are_found() {
    let theirs = Declarations::parse(
        r#"
        pub type HANDLE = *mut core::ffi::c_void;
        pub const OID_A: u32 = 0x0001_0203u32;
        pub const STATUS_B: NTSTATUS = 0xC0000001_u32 as _;
        pub type NTSTATUS = i32;
        #[repr(C)] pub struct MOVED { pub Type: u8, pub Anonymous: MOVED_0, pub Last: [u16; 2] }
        #[repr(C)] pub union MOVED_0 { pub Value: u32, pub Pointer: HANDLE }
        windows_link::link!("hal.dll" "system" fn Counter(frequency : *mut i64) -> i64);
        windows_link::link!("ndis.sys" "system" fn Send(binding : HANDLE, flags : u32));
        "#,
    );
    let right = r#"
        pub struct NTSTATUS(pub i32);
        pub const OID_A: u32 = 1 << 16 | 0x203;
        pub const STATUS_B: NTSTATUS = NTSTATUS(0xC000_0001_u32.cast_signed());
        pub const NDIS_STATUS_PAUSED: NTSTATUS = NTSTATUS(0xC023_002A_u32.cast_signed());
        #[repr(C)] pub struct MOVED { pub Type: u8, pub Value: u64, pub Last: [u16; 2] }
        #[link(name = "HAL.DLL", kind = "raw-dylib")]
        unsafe extern "system" { fn Counter(frequency: *mut i64) -> i64; }
        #[link(name = "ndis.sys", kind = "raw-dylib")]
        unsafe extern "system" { fn Send(binding: *mut u8, flags: u32); }
    "#;
    let right = right.replace("pub Value: u64", "pub Pointer: *mut u8");
    let found = |text: &str| {
        let ours = Declarations::parse(text);
        let imports = ours.imports().collect();
        let claims = [
            constants(&ours, &theirs),
            structures(&ours, &theirs),
            functions(&ours, &theirs),
            modules(&imports, &theirs),
        ];
        Verdicts::of(&claims.into_iter().flatten().collect::<Vec<_>>()).complaints()
    };
    assert_eq!(found(&right), <[String; 0]>::default());
    for (was, is, complaint) in [
        ("0x203", "0x204", "OID_A: "),
        ("0xC000_0001", "0x4000_0001", "STATUS_B: "),
        ("pub Type: u8", "pub Type: [u8; 9]", "MOVED: "),
        ("[u16; 2]", "[u8; 2]", "MOVED.Last: "),
        ("pub Last", "pub Lost", "MOVED.Lost: nobody"),
        ("HAL.DLL", "ntoskrnl.exe", "ntoskrnl.exe!Counter: "),
        ("frequency: *mut i64", "frequency: *mut i64, more: u8", "Counter: "),
        ("flags: u32", "flags: u64", "Send: "),
        ("pub const OID_A", "pub const OID_C: u32 = 1; pub const OID_A", "OID_C: nobody"),
    ] {
        let complaints = found(&right.replacen(was, is, 1));
        assert!(complaints.iter().any(|said| said.starts_with(complaint)), "{is}: {complaints:?}");
    }
    let denied = found(&right.replacen("0xC023_002A", "0xC001_002A", 1));
    let skipped = headers::judge(&["1 == 1".to_owned()]).is_none();
    assert!(skipped || denied[0].starts_with("NDIS_STATUS_PAUSED: mingw-w64 denies"), "{denied:?}");
}

/// A claim about a name: what is right, and how C says so.
struct Claim {
    name: String,
    ours: String,
    /// The same of somebody else, if `windows-sys` has it.
    theirs: Option<String>,
    /// An expression that is true if we are right; none if C cannot tell.
    c: Option<String>,
}

/// Looks each claim's name up, prints how many were found, and complains.
fn judge(of: &str, claims: &[Claim]) -> Vec<String> {
    assert!(!claims.is_empty(), "{of}: none are found");
    let verdicts = Verdicts::of(claims);
    println!(
        "{of}: {} compared; {} with windows-sys or import libraries, {} with mingw-w64's headers; {} stand alone: {}",
        verdicts.compared().count(),
        verdicts.windows_sys.len(),
        verdicts.mingw.len(),
        verdicts.alone.len(),
        Vec::from_iter(BTreeSet::from_iter(verdicts.alone.iter().map(|name| owner(name))))
            .join(" ")
    );
    if verdicts.without_mingw {
        skip(&format!("{of} by mingw-w64's headers: gcc-mingw-w64-x86-64-win32 is not installed"));
    }
    verdicts.complaints()
}

/// Past the test harness, which shows the output of failed tests only.
fn skip(what: &str) {
    let _ = writeln!(io::stderr(), "skipped: {what}");
}

/// The structure that a member is of; any other name itself.
fn owner(name: &str) -> &str {
    if name.contains('!') { name } else { name.split('.').next().expect("a name") }
}

#[derive(Default)]
struct Verdicts {
    windows_sys: BTreeSet<String>,
    mingw: BTreeSet<String>,
    alone: BTreeSet<String>,
    wrong: BTreeMap<String, String>,
    without_mingw: bool,
}

impl Verdicts {
    fn compared(&self) -> impl Iterator<Item = &String> {
        self.windows_sys.union(&self.mingw)
    }

    /// One for each that is wrong, and for each that nobody else has, unless `abi/alone` has a reason for it; and
    /// for each reason that is none.
    fn complaints(&self) -> Vec<String> {
        let reasons: BTreeSet<&str> = ALONE.lines().filter(|line| !line.starts_with('#')).collect();
        // A reason for a structure is one for its members.
        let has_reason = |name: &str| {
            let of = owner(name);
            let of_all =
                |reason: &&str| reason.strip_suffix('*').is_some_and(|all| of.starts_with(all));
            reasons.contains(name) || reasons.contains(of) || reasons.iter().any(of_all)
        };
        let mut all = Vec::new();
        for (name, said) in self.wrong.iter().filter(|(name, _)| !has_reason(name)) {
            all.push(format!("{name}: {said}"));
        }
        // Half of them stand in its headers alone.
        let alone = self.alone.iter().filter(|_| !self.without_mingw);
        for name in alone.filter(|name| !has_reason(name)) {
            all.push(format!("{name}: nobody else has it, and abi/alone has no reason"));
        }
        let right = self.compared().filter(|name| !self.wrong.contains_key(*name));
        for name in right.filter(|name| reasons.contains(name.as_str())) {
            all.push(format!("{name} is right, and needs no reason in abi/alone"));
        }
        all
    }

    fn of(claims: &[Claim]) -> Self {
        let mut all = Self::default();
        for Claim { name, ours, theirs, .. } in claims {
            let names = if theirs.is_some() { &mut all.windows_sys } else { &mut all.alone };
            names.insert(name.clone());
            if let Some(theirs) = theirs.as_ref().filter(|theirs| *theirs != ours) {
                all.wrong.insert(name.clone(), format!("{ours}, and others have {theirs}"));
            }
        }
        let claims: Vec<_> =
            claims.iter().filter_map(|claim| Some((&claim.name, claim.c.clone()?))).collect();
        let expressions: Vec<_> = claims.iter().map(|(_, expression)| expression.clone()).collect();
        let found = headers::judge(&expressions);
        all.without_mingw = found.is_none();
        for ((name, expression), verdict) in claims.into_iter().zip(found.into_iter().flatten()) {
            if verdict == Verdict::Unknown {
                continue;
            }
            all.mingw.insert(name.clone());
            all.alone.remove(name);
            if verdict == Verdict::False {
                all.wrong.insert(name.clone(), format!("mingw-w64 denies that {expression}"));
            }
        }
        all
    }
}

fn constants(ours: &Declarations, theirs: &Declarations) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (name, all) in &ours.constants {
        let constant = &all[0];
        let value =
            ours.value(constant).unwrap_or_else(|| panic!("the value of {name} is not read"));
        let size = ours.extent(&constant.0).expect("a value has a type").size;
        let mask = if size >= 16 { u128::MAX } else { (1 << (8 * size)) - 1 };
        // Where two modules of theirs have one name, both mean the same.
        let others = theirs.constants.get(name).into_iter().flatten();
        let others: BTreeSet<_> =
            others.filter_map(|other| Some(theirs.value(other)? & mask)).collect();
        claims.push(Claim {
            name: name.clone(),
            ours: format!("{value:#x}"),
            theirs: (!others.is_empty()).then(|| {
                others.iter().map(|value| format!("{value:#x}")).collect::<Vec<_>>().join(" or ")
            }),
            c: (size <= 8)
                .then(|| format!("((unsigned long long)({name}) & {mask:#x}ULL) == {value:#x}ULL")),
        });
    }
    claims
}

/// Structures that in `windows-sys` have unions of types that are not read here; mingw-w64's headers judge them.
const UNREAD: [&str; 2] = ["IO_STACK_LOCATION", "IRP"];

fn structures(ours: &Declarations, theirs: &Declarations) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (name, named) in &ours.types {
        let Named::Aggregate(aggregate) = named else { continue };
        // A transparent one is a number in C.
        if !is_c(aggregate) {
            continue;
        }
        let other = match theirs.types.get(name) {
            Some(Named::Aggregate(other)) if !UNREAD.contains(&name.as_str()) => Some(other),
            _ => None,
        };
        claims.extend(size(ours, theirs, name, aggregate));
        let members = ours.members(aggregate).unwrap_or_else(|| panic!("{name} is not read"));
        let other = other.map(|other| {
            theirs.members(other).unwrap_or_else(|| panic!("{name} of windows-sys is not read"))
        });
        for (member, _) in &aggregate.members {
            let (offset, extent) = members[&member.to_lowercase()];
            // One of an opaque structure has no name; an array without elements stands for one of any length.
            if extent.size == 0 || member.starts_with(|first: char| first.is_ascii_digit()) {
                continue;
            }
            let other = other.as_ref().and_then(|other| other.get(&member.to_lowercase()));
            claims.push(Claim {
                name: format!("{name}.{member}"),
                ours: format!("{} bytes at {offset:#x}", extent.size),
                theirs: other.map(|(offset, extent)| format!("{} bytes at {offset:#x}", extent.size)),
                c: Some(format!(
                    "__builtin_offsetof({name}, {member}) == {offset} && sizeof((({name} *)0)->{member}) == {}",
                    extent.size
                )),
            });
        }
    }
    claims
}

fn is_c(aggregate: &Aggregate) -> bool {
    let mut c = false;
    for attribute in aggregate.attributes.iter().filter(|one| one.path().is_ident("repr")) {
        attribute
            .parse_nested_meta(|meta| {
                c |= meta.path.is_ident("C");
                if meta.input.peek(syn::token::Paren) {
                    let inside;
                    syn::parenthesized!(inside in meta.input);
                    inside.parse::<syn::LitInt>()?;
                }
                Ok(())
            })
            .expect("#[repr(...)]");
    }
    c
}

/// The size; none of a structure that goes on behind what is declared of it.
fn size(
    ours: &Declarations,
    theirs: &Declarations,
    name: &str,
    aggregate: &Aggregate,
) -> Option<Claim> {
    let last = &aggregate.members.last()?.1;
    if ours.extent(last)?.size == 0 {
        return None;
    }
    let ty = syn::parse_str(name).expect("a name");
    let size = ours.extent(&ty)?.size;
    let other = theirs.extent(&ty).filter(|_| theirs.types.contains_key(name));
    Some(Claim {
        name: name.to_owned(),
        ours: format!("{size} bytes"),
        theirs: other.map(|other| format!("{} bytes", other.size)),
        c: Some(format!("sizeof({name}) == {size}")),
    })
}

fn functions(ours: &Declarations, theirs: &Declarations) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (name, all) in &ours.functions {
        for function in all {
            let widths = ours.widths(&function.signature).unwrap_or_else(|| panic!("{name}"));
            let others = theirs.functions.get(name).and_then(|others| others.first());
            let others = others.map(|other| {
                theirs.widths(&other.signature).unwrap_or_else(|| panic!("{name} of windows-sys"))
            });
            // The sizes of arguments are compared with `windows-sys` alone: C converts a zero to all of them.
            let (result, arguments) = widths.split_last().expect("a result");
            let zeros = vec!["0"; arguments.len()].join(", ");
            let result = if *result == 0 { 1 } else { *result };
            claims.push(Claim {
                name: name.clone(),
                ours: format!("{widths:?}"),
                theirs: others.map(|others| format!("{others:?}")),
                c: Some(format!("sizeof({name}({zeros})) == {result}")),
            });
        }
    }
    for (name, named) in &ours.types {
        let Named::Alias(ty) = named else { continue };
        let Some(widths) = ours.pointer_widths(ty) else { continue };
        let other = [name.clone(), format!("P{name}")];
        let other = other.iter().find_map(|name| match theirs.types.get(name)? {
            Named::Alias(ty) => theirs.pointer_widths(ty),
            Named::Aggregate(_) => None,
        });
        claims.push(Claim {
            name: name.clone(),
            ours: format!("{widths:?}"),
            theirs: other.map(|other| format!("{other:?}")),
            c: None,
        });
    }
    claims
}

/// Modules of user mode, whose functions the kernel has elsewhere under the same names.
const USER_MODE: [&str; 3] = ["bcrypt.dll", "iphlpapi.dll", "ntdll.dll"];

fn modules(imports: &BTreeSet<String>, theirs: &Declarations) -> Vec<Claim> {
    let libraries = libraries::modules();
    if libraries.is_none() {
        skip("modules that windows-sys does not tell: mingw-w64-x86-64-dev is not installed");
    }
    let mut claims = Vec::new();
    for import in imports {
        let (module, name) = import.split_once('!').expect("module!function");
        let linked = theirs.functions.get(name).into_iter().flatten();
        let mut found: BTreeSet<&str> = linked.map(|one| one.module.as_str()).collect();
        found.retain(|module| !USER_MODE.contains(module));
        let exported = libraries.as_ref().and_then(|libraries| libraries.get(name));
        found.extend(exported.into_iter().flatten().map(String::as_str));
        if found.is_empty() && libraries.is_none() {
            continue;
        }
        claims.push(Claim {
            name: import.clone(),
            ours: module.to_owned(),
            theirs: (!found.is_empty()).then(|| found.into_iter().collect::<Vec<_>>().join(" or ")),
            c: None,
        });
    }
    claims
}
