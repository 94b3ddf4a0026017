//! The headers of mingw-w64, asked by its compiler: one assertion for each claim.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// What the headers say of a claim.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Verdict {
    /// They do not have what it is about.
    Unknown,
    True,
    False,
}

/// The kernel's headers, those of NDIS and those of user mode, which do not go into one file.
const UNITS: [&str; 3] = [
    "#include <ntifs.h>\n",
    // It has enumerations of its own instead of those of the header that it includes, and faults.
    "#define _NTDDNDIS_\n#define NDIS_MINIPORT_DRIVER\n#define NDIS620_MINIPORT 1\n\
     #define NDIS_SUPPORT_NDIS6 1\n#define NDIS_SUPPORT_NDIS61 1\n\
     #include <ntifs.h>\n#include <netevent.h>\n#include <ndis.h>\n",
    "#define NDIS_SUPPORT_NDIS620 1\n\
     #include <winsock2.h>\n#include <ws2ipdef.h>\n#include <iphlpapi.h>\n#include <ntddndis.h>\n\
     #include <ndkinfo.h>\n#include <bcrypt.h>\n#include <netioapi.h>\n",
];

/// Judges claims, each an expression of C over types and constants. None where there is no compiler.
pub(crate) fn judge(claims: &[String]) -> Option<Vec<Verdict>> {
    let mut verdicts = vec![Verdict::Unknown; claims.len()];
    for headers in UNITS.iter().filter(|_| !claims.is_empty()) {
        for (verdict, found) in verdicts.iter_mut().zip(ask(headers, claims)?) {
            *verdict = found.max(*verdict);
        }
    }
    Some(verdicts)
}

fn ask(headers: &str, claims: &[String]) -> Option<Vec<Verdict>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("target/tmp is writable");
    let path = folder.path().join("claims.c");
    let mut text =
        format!("#define NTDDI_VERSION 0x0A000000\n#define _WIN32_WINNT 0x0A00\n{headers}");
    // Each stands alone, on a line that the compiler's complaint names. The last are answered as ever.
    text += "#line 1 \"claims\"\n";
    let known = ["sizeof(int) == 4", "sizeof(int) == 5", "sizeof(NoSuchType) == 4"];
    for claim in claims.iter().map(String::as_str).chain(known) {
        text += &format!("_Static_assert({claim}, \"claim\");\n");
    }
    fs::write(&path, text).expect("a file");
    let mut compiler = Command::new("x86_64-w64-mingw32-gcc");
    compiler.args(["-fsyntax-only", "-Werror=implicit-function-declaration", "-fmax-errors=0"]);
    compiler
        .args(["-I/usr/share/mingw-w64/include/ddk", "-D_AMD64_"])
        .arg(&path)
        .env("LC_ALL", "C");
    let output = compiler.output().ok()?;
    let mut complaints = BTreeMap::<usize, Vec<&str>>::new();
    let said = String::from_utf8_lossy(&output.stderr);
    for line in said.lines() {
        let complaint = line.strip_prefix("claims:").and_then(|rest| rest.split_once(':'));
        let complaint = complaint.filter(|(_, complaint)| complaint.contains("error: "));
        if let Some((line, complaint)) = complaint {
            complaints.entry(line.parse().expect("a line's number")).or_default().push(complaint);
        }
    }
    let verdict = |line: usize| match complaints.get(&line) {
        None => Verdict::True,
        Some(said) if said.iter().any(|said| said.contains("implicit declaration")) => {
            Verdict::Unknown
        }
        Some(said) if said.iter().any(|said| WRONG.iter().any(|wrong| said.contains(wrong))) => {
            Verdict::False
        }
        Some(_) => Verdict::Unknown,
    };
    let mut verdicts: Vec<_> = (1..=claims.len() + known.len()).map(verdict).collect();
    let control = verdicts.split_off(claims.len());
    assert_eq!(control, [Verdict::True, Verdict::False, Verdict::Unknown], "{headers}{said}");
    Some(verdicts)
}

/// Complaints about a claim whose names the headers have.
const WRONG: [&str; 3] = ["static assertion failed", "too few arguments", "too many arguments"];
