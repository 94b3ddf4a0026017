//! Goal: C programs compile without a warning, link and do what they say; the checks of the stand-in, and those of
//! AddressSanitizer over it, find mistakes.
//! Method: each compiler of this machine builds the examples against the library that cargo has made for this test.

mod cc;

use cc::includes;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use tempfile::TempDir;

/// A folder with the library under the names that it is installed by, and with the programs.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libndkrocev2.so", "libndkrocev2.so.0"] {
            let made = built().join("libndk_c.so");
            symlink(made, folder.path().join(name)).expect("a link");
        }
        Self { folder }
    }

    /// Builds a program of the stand-in and the sources of `path`, a file or a folder.
    fn build(&self, compiler: &str, path: &str, flags: &[&str]) -> PathBuf {
        let mut command = cc::compile(compiler);
        command.args(flags);
        self.link(command, path)
    }

    /// The same, by a compiler that has its flags.
    fn link(&self, mut command: Command, path: &str) -> PathBuf {
        let name = Path::new(path).file_stem().expect("a name");
        let program = self.folder.path().join(name);
        command.args(sources(path)).args(sources("shim/src")).arg("-o").arg(&program);
        command.arg("-L").arg(self.folder.path()).args(["-lndkrocev2", "-lpthread"]);
        let mut runpath = OsString::from("-Wl,-rpath,");
        runpath.push(self.folder.path());
        cc::run(command.arg(runpath));
        program
    }
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder where cargo has left the libraries beside this test.
fn built() -> PathBuf {
    let test = env::current_exe().expect("this program has a path");
    test.parent().expect("it lies in a folder").to_owned()
}

/// The C files of a folder, or the one that `path` is.
fn sources(path: &str) -> Vec<PathBuf> {
    let path = package().join(path);
    if path.is_file() {
        return vec![path];
    }
    let files = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension() == Some(OsStr::new("c"))).collect();
    files.sort();
    files
}

fn run(program: &Path, arguments: &[&str]) -> String {
    cc::run(Command::new(program).args(arguments))
}

/// Runs a program that has to fail, and gives its error output.
fn fails(program: &Path, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } =
        Command::new(program).args(arguments).output().expect("it runs");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "{arguments:?} succeeds: {text}");
    text
}

const ADDRESS_SANITIZER: &str = "-fsanitize=address";

/// Goal: a compiler can be had without its sanitizers; where they are, they are used.
fn has_sanitizer(compiler: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    let mut command = Command::new(compiler);
    command.arg(ADDRESS_SANITIZER).arg(&source).arg("-o").arg(folder.path().join("empty"));
    let has = command.output().expect("it runs").status.success();
    if !has {
        println!("skipped: {compiler} has no AddressSanitizer here");
    }
    has
}

#[test]
fn the_smallest_consumer_writes() {
    let bench = Bench::new();
    for compiler in cc::compilers() {
        let program = bench.build(compiler, "examples/write.c", &[]);
        assert_eq!(run(&program, &[]), "21 bytes arrived: one WRITE over RoCEv2\n");
        let socket = |name: &str| bench.folder.path().join(name).display().to_string();
        let edge = |own, peer| format!("qemu-dgram:{}:{},mtu=4200", socket(own), socket(peer));
        let edges = [edge("client", "server"), edge("server", "client")];
        let printed = run(&program, &edges.each_ref().map(String::as_str));
        assert_eq!(printed, "21 bytes arrived: one WRITE over RoCEv2\n");
    }
}

/// Goal: each function of the library answers right and wrong calls as its comment says.
#[test]
fn the_library_answers_mistakes() {
    let bench = Bench::new();
    for compiler in cc::compilers() {
        let program = bench.build(compiler, "tests/library.c", &[]);
        let record = bench.folder.path().join("frames.pcap");
        let mut program = Command::new(&program);
        let output = program.arg(&record).output().expect("it runs");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out, "all as said\n", "{err}");
        assert_eq!(
            err,
            "10.0.0.7: ndk-verifier: mistake: NdkCloseMr, MR 1 of adapter 1: it was closed before. \
             Rule ClosedTwice: An object is closed once.\n\
             10.0.0.8: ndk-verifier: mistake: a free, MR 1 of adapter 1: it uses the MDL. Rule \
             MdlFreed: An MDL stays until the registration or mapping of its memory has ended.\n\
             10.0.0.8: ndk-verifier: mistake: a free, MR 1 of adapter 1: it uses the memory. Rule \
             BufferFreed: Memory is not freed while a request or a registration uses it.\n"
        );
        let frames = fs::read(&record).expect("the record");
        assert_eq!(frames.len(), 24, "the header of a file without frames, as none was sent");
    }
}

/// Goal: the README's first program is one, without the stand-in.
#[test]
fn the_program_of_the_readme_runs() {
    let bench = Bench::new();
    let text = fs::read_to_string(package().join("README.md")).expect("the README");
    let code = text.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let (source, program) =
        (bench.folder.path().join("first.c"), bench.folder.path().join("first"));
    fs::write(&source, code.expect("a program")).expect("the file");
    for compiler in cc::compilers() {
        let mut command = cc::compile(compiler);
        command.arg(&source).arg("-o").arg(&program).arg("-L").arg(bench.folder.path());
        cc::run(command.arg("-lndkrocev2"));
        let mut program = Command::new(&program);
        let printed = cc::run(program.env("LD_LIBRARY_PATH", bench.folder.path()));
        assert_eq!(printed, "NDK 2.1, requests of 1073741824 bytes\n");
    }
}

/// Goal: a program in C++ takes every header as it is, and the library.
#[test]
fn the_headers_are_for_cpp_too() {
    let bench = Bench::new();
    let (source, program) = (package().join("tests/headers.cpp"), bench.folder.path().join("cpp"));
    for (compiler, standard) in [("g++", "11"), ("g++", "20"), ("clang++", "11"), ("clang++", "20")]
    {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("skipped: {compiler} is not installed");
            continue;
        }
        let mut command = Command::new(compiler);
        command.args([&format!("-std=c++{standard}"), "-Wall", "-Wextra", "-Werror"]);
        command.args(includes()).arg(&source).arg("-o").arg(&program);
        cc::run(command.arg("-L").arg(bench.folder.path()).arg("-lndkrocev2"));
        let mut program = Command::new(&program);
        let printed = cc::run(program.env("LD_LIBRARY_PATH", bench.folder.path()));
        assert_eq!(printed, "NDK 2.1\n", "{compiler}, C++{standard}");
    }
}

/// Goal: sockets of this system beside those of Windows end in a sentence, in whatever order.
#[test]
fn sockets_of_this_system_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("sockets.c");
    for headers in [
        ["ndkbase.h", "sys/socket.h"],
        ["ndkbase.h", "netinet/in.h"],
        ["sys/socket.h", "ndkbase.h"],
        ["netinet/in.h", "ndkbase.h"],
    ] {
        let text = headers.map(|header| format!("#include <{header}>\n")).concat();
        fs::write(&source, text).expect("a file");
        for compiler in cc::compilers() {
            let mut command = cc::compile(compiler);
            let output = command.arg("-fsyntax-only").arg(&source).output().expect("it runs");
            let told = String::from_utf8_lossy(&output.stderr);
            let first = told.lines().find(|line| line.contains("error: ")).unwrap_or_default();
            assert!(first.contains("those of"), "{compiler}, {headers:?}: {told}");
        }
    }
}

#[test]
fn the_static_library_is_whole() {
    let bench = Bench::new();
    let program = bench.folder.path().join("static");
    let mut command = cc::compile("cc");
    command.args(sources("examples/write.c")).args(sources("shim/src")).arg("-o").arg(&program);
    command.arg(built().join("libndk_c.a")).args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]);
    cc::run(&mut command);
    assert_eq!(run(&program, &[]), "21 bytes arrived: one WRITE over RoCEv2\n");
}

#[test]
fn the_driver_leaves_nothing() {
    let bench = Bench::new();
    for compiler in cc::compilers() {
        let program = bench.build(compiler, "examples/wdm_consumer", &[]);
        assert_eq!(run(&program, &["20"]), "20 rounds, 0 objects and 0 other things left\n");
        // Packets come late, too.
        assert_eq!(run(&program, &["3", "5"]), "3 rounds, 0 objects and 0 other things left\n");
    }
}

/// Goal: the driver keeps every rule, however its calls end. Method: the verifier's reports go to standard error, where a
/// program that succeeds writes nothing; twenty seeds, or as many as `EXPLORE_SEEDS` says.
#[test]
fn the_driver_keeps_the_rules_in_every_way_that_calls_may_end() {
    let bench = Bench::new();
    let compiler = cc::compilers()[0];
    let flags: &[&str] = if has_sanitizer(compiler) { &[ADDRESS_SANITIZER] } else { &[] };
    let program = bench.build(compiler, "examples/wdm_consumer", flags);
    let seeds = env::var("EXPLORE_SEEDS").map_or(20, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let layers = format!("verify,explore={seed}");
        let done = Command::new(&program).args(["2", "0", &layers]).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{layers}");
        assert_eq!(
            String::from_utf8_lossy(&done.stdout),
            "2 rounds, 0 objects and 0 other things left\n",
            "{layers}"
        );
    }
}

#[test]
fn the_driver_runs_under_address_sanitizer() {
    let bench = Bench::new();
    for compiler in cc::compilers().into_iter().filter(|compiler| has_sanitizer(compiler)) {
        let program = bench.build(compiler, "examples/wdm_consumer", &[ADDRESS_SANITIZER]);
        assert_eq!(run(&program, &["100"]), "100 rounds, 0 objects and 0 other things left\n");
    }
}

/// Goal: a header of others may stand in place of ours. The one that many machines have is mingw-w64's ndkinfo.h, of
/// the first version.
#[test]
fn a_header_of_others_is_enough() {
    let theirs = Path::new("/usr/share/mingw-w64/include/ndkinfo.h");
    if !theirs.exists() {
        println!("skipped: no headers of mingw-w64");
        return;
    }
    let bench = Bench::new();
    fs::copy(theirs, bench.folder.path().join("ndkinfo.h")).expect("a copy");
    for compiler in cc::compilers() {
        let include = format!("-I{}", bench.folder.path().display());
        let mut command = Command::new(compiler);
        // Their folder comes first, so ours has the other headers alone.
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", &include]).args(includes());
        let program = bench.link(command, "examples/wdm_consumer");
        assert_eq!(run(&program, &[]), "1 rounds, 0 objects and 0 other things left\n");
    }
}

/// Goal: AddressSanitizer sees the adapter's own access to a buffer that the consumer has freed. The library is not
/// instrumented; its copies go by memmove, which is.
#[test]
fn a_buffer_that_is_freed_too_early_is_reported() {
    let bench = Bench::new();
    for compiler in cc::compilers().into_iter().filter(|compiler| has_sanitizer(compiler)) {
        let flags = [ADDRESS_SANITIZER, "-DWRITE_AFTER_FREE"];
        let program = bench.build(compiler, "examples/write.c", &flags);
        let told = fails(&program, &[]);
        assert!(told.contains("AddressSanitizer: heap-use-after-free"), "{told}");
        assert!(told.contains("READ of size 22"), "{told}");
    }
}

/// Goal: each rule that a consumer breaks ends the process with its sentence; nothing else does.
#[test]
fn the_shim_finds_mistakes() {
    let bench = Bench::new();
    let text = fs::read_to_string(package().join("tests/shim.c")).expect("the source");
    let (_, cases) = text.split_once("Cases[] = {").expect("the list");
    let cases: Vec<_> = cases.lines().filter_map(|line| line.trim().strip_prefix("{ \"")).collect();
    for compiler in cc::compilers() {
        let program = bench.build(compiler, "tests/shim.c", &["-Wno-multichar"]);
        let output = Command::new(&program).output().expect("it runs");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((&*out, &*err), ("0 left\n", "7 C0000001 -1 text%\n"));
        let left = run(&program, &["leaks"]);
        assert_eq!(left, "6 left\n");
        for case in &cases[2..] {
            let (rule, _) = case.split_once('"').expect("a name");
            let told = fails(&program, &[rule]);
            assert!(told.starts_with("ndkshim: ") && told.contains(rule), "{rule}: {told}");
        }
    }
    assert!(cases.len() > 10, "{cases:?}");
}

/// Goal: the Makefile installs what pkg-config finds, and a program needs nothing else.
#[test]
fn an_installed_library_is_found() {
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    if let Some(missing) = ["make", "pkg-config"].into_iter().find(is_missing) {
        println!("skipped: {missing} is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut make = Command::new("make");
    // Cargo has built the library already.
    make.current_dir(package()).args(["install", "CARGO=:", "PREFIX=/usr"]);
    make.arg(format!("OUT={}", built().display())).arg(format!("BUILD={}", path("build")));
    cc::run(make.arg(format!("DESTDIR={}", path("root"))).env_remove("MAKEFLAGS"));
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_PATH", path("root/usr/lib/pkgconfig"));
    config.env("PKG_CONFIG_SYSROOT_DIR", path("root"));
    let flags = cc::run(config.args(["--cflags", "--libs", "ndkshim"]));
    let program = path("write");
    let mut command = Command::new("cc");
    command.args(sources("examples/write.c")).args(flags.split_whitespace());
    cc::run(command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o", &program]));
    let printed = cc::run(Command::new(program).env("LD_LIBRARY_PATH", path("root/usr/lib")));
    assert_eq!(printed, "21 bytes arrived: one WRITE over RoCEv2\n");
}
