//! Goal: C and Rust see the same structures and constants.
//! Method: Rust fills in sizes, offsets and values, and a C compiler judges them; then a C program prints its own,
//! and Rust compares. Every declaration of the headers is in the list, by the test `headers`.

mod cc;
#[path = "layout/facts.rs"]
mod facts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use driver::abi::{NDK_OBJECT_TYPE, NDK_OPERATION_TYPE, NDK_RDMA_TECHNOLOGY, NTSTATUS};
use facts::facts;

/// An expression of C, and the value that it has for Rust.
pub(crate) struct Fact {
    c: String,
    value: u64,
}

macro_rules! size {
    ($name:ident) => {
        Fact {
            c: concat!("sizeof(", stringify!($name), ")").into(),
            value: size_of::<$name>() as u64,
        }
    };
}

/// The size of a structure with an array at its end: of one element in C, of none in Rust.
macro_rules! trailing {
    ($name:ident) => {{
        let element = size_of::<driver::abi::NDK_LOGICAL_ADDRESS>();
        let value = (size_of::<$name>() + element) as u64;
        Fact { c: concat!("sizeof(", stringify!($name), ")").into(), value }
    }};
}

/// The place of a member, and how many bytes it takes.
macro_rules! member {
    ($name:ident, $member:ident, $c:literal) => {{
        let size = $crate::size_of_member(|whole: &$name| &raw const whole.$member) as u64;
        let place = place!($name, $member, $c);
        let c = concat!("((uint64_t)sizeof(((", stringify!($name), " *)0)->", $c, ") << 32)");
        Fact { c: format!("{c} + {}", place.c), value: (size << 32) + place.value }
    }};
}

/// The place of a member.
macro_rules! place {
    ($name:ident, $member:ident, $c:literal) => {
        Fact {
            c: concat!("offsetof(", stringify!($name), ", ", $c, ")").into(),
            value: std::mem::offset_of!($name, $member) as u64,
        }
    };
}

macro_rules! constant {
    ($name:ident) => {
        Fact {
            c: concat!("(uint32_t)", stringify!($name)).into(),
            value: $crate::bits($name).into(),
        }
    };
}

pub(crate) use {constant, member, place, size, trailing};

fn size_of_member<T, M>(_: impl FnOnce(&T) -> *const M) -> usize {
    size_of::<M>()
}

/// A constant's 32 bits, whatever type it has.
fn bits(constant: impl Into<Bits>) -> u32 {
    constant.into().0
}

struct Bits(u32);

macro_rules! bits_from {
    ($($Type:ty: |$value:ident| $bits:expr;)+) => {$(
        impl From<$Type> for Bits {
            fn from($value: $Type) -> Self {
                Self($bits)
            }
        }
    )+};
}

bits_from! {
    u8: |value| value.into();
    u16: |value| value.into();
    i16: |value| value.cast_unsigned().into();
    u32: |value| value;
    usize: |value| value.try_into().expect("no header has a constant of more than 32 bits");
    NTSTATUS: |value| value.0.cast_unsigned();
    NDK_OBJECT_TYPE: |value| value.0.cast_unsigned();
    NDK_OPERATION_TYPE: |value| value.0.cast_unsigned();
    NDK_RDMA_TECHNOLOGY: |value| value.0.cast_unsigned();
}

/// Compiles `source` into a program, or into an object if `flags` say so.
fn build(compiler: &str, source: &Path, program: &Path, flags: &[&str]) {
    cc::run(cc::compile(compiler).arg(source).arg("-o").arg(program).args(flags));
}

const INCLUDES: &str = "#include <ndkrocev2.h>\n#include <stdio.h>\n";

/// Goal: the C compiler agrees with each number of Rust's; and it would refuse a wrong one.
#[test]
fn c_agrees_with_rust() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, object) = (folder.path().join("layout.c"), folder.path().join("layout.o"));
    let mut text = INCLUDES.to_owned();
    for Fact { c, value } in facts() {
        writeln!(text, "_Static_assert({c} == {value}u, \"{c}\");").expect("a string");
    }
    let assertions = text.lines().count() - 2;
    for compiler in cc::compilers() {
        fs::write(&source, &text).expect("the file");
        build(compiler, &source, &object, &["-c"]);
        let wrong = text.replacen(" == 0u", " == 1u", 1);
        fs::write(&source, wrong).expect("the file");
        let refused = cc::compile(compiler).arg("-c").arg(&source).arg("-o").arg(&object).output();
        assert!(!refused.expect("it runs").status.success(), "{compiler} believes everything");
        println!("{compiler}: {assertions} assertions");
    }
    assert!(assertions > 300, "{assertions}");
}

/// Goal: each number that a C program sees is Rust's.
#[test]
fn rust_agrees_with_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let mut text = format!("{INCLUDES}int main(void)\n{{\n");
    for Fact { c, .. } in facts() {
        writeln!(text, "    printf(\"%s = %llu\\n\", \"{c}\", (unsigned long long)({c}));")
            .expect("a string");
    }
    text += "    return 0;\n}\n";
    fs::write(&source, &text).expect("the file");
    for compiler in cc::compilers() {
        build(compiler, &source, &program, &[]);
        let printed = cc::run(&mut Command::new(&program));
        let printed: BTreeMap<_, u64> = printed
            .lines()
            .map(|line| line.rsplit_once(" = ").expect("a name and a number"))
            .map(|(c, value)| (c, value.parse().expect("a number")))
            .collect();
        for Fact { c, value } in facts() {
            assert_eq!(printed.get(&*c), Some(&value), "{compiler}: {c}");
        }
    }
}

/// Goal: a program that includes one header alone compiles.
#[test]
fn each_header_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, object) = (folder.path().join("alone.c"), folder.path().join("alone.o"));
    let headers = ["ndkbase.h", "ndkinfo.h", "ndkpi.h", "ndkrocev2.h", "wskndk.h"];
    for header in headers {
        let text =
            format!("#include <{header}>\n#include <{header}>\ntypedef int a_file_is_not_empty;\n");
        fs::write(&source, text).expect("the file");
        for compiler in cc::compilers() {
            build(compiler, &source, &object, &["-c"]);
        }
    }
}
