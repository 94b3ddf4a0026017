//! The panics that the linker kept: each is a bug check, so each has a reason.
//!
//! A place of the image's code that calls one of the functions by which Rust panics is attributed, by the symbols, to the
//! innermost function that was inlined there and is ours, or else to the file that it comes from. [`BUDGET`] says how
//! many of a kind there may be, and why they are not reached. It only falls.

use std::collections::BTreeMap;
use std::path::Path;

use super::chains::Graph;
use super::frames::symbols;

/// The functions by which code panics, by the beginnings of their names. They are cold, and call each other.
const PANICS: &[&str] = &[
    "alloc::alloc::handle_alloc_error",
    "alloc::raw_vec::capacity_overflow",
    "alloc::raw_vec::handle_error",
    "alloc::vec::Vec::insert::assert_failed",
    "alloc::vec::Vec::remove::assert_failed",
    "alloc::vec::Vec::split_off::assert_failed",
    "alloc::vec::Vec::swap_remove::assert_failed",
    "core::cell::panic_",
    "core::num::",
    "core::option::expect_failed",
    "core::option::unwrap_failed",
    "core::panicking::",
    "core::result::unwrap_failed",
    "core::slice::copy_from_slice_impl::len_mismatch_fail",
    "core::slice::index::slice_",
    "core::str::slice_error_fail",
];

/// A kind of panic: the functions that make it, how many places may call them, and why none of these is reached.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    by: &'static [&'static str],
    pub(crate) most: usize,
    pub(crate) reason: &'static str,
}

pub(crate) const BUDGET: &[Kind] = &[
    Kind {
        name: "bounds",
        by: &["core::panicking::panic_bounds_check", "core::slice::", "core::str::"],
        most: 460,
        reason: "an index or length of our own: of frames and of a consumer's lists, which are read once, it was \
                 checked where it was read",
    },
    Kind {
        name: "memory",
        by: &["alloc::alloc::", "alloc::raw_vec::"],
        most: 248,
        reason: "small memory of a turn or a request: it was asked for before, or a reserve stands behind the pool",
    },
    Kind {
        name: "invariant",
        by: &["alloc::vec::", "core::"],
        most: 295,
        reason: "an `expect`, an `assert!` or a division by a number of ours that is not 0: broken, the state of the \
                 provider is no longer known, and going on would corrupt memory of others",
    },
];

impl Kind {
    /// The kind of a panic by this function: the first that fits.
    pub(crate) fn of(by: &str) -> Option<&'static Self> {
        BUDGET.iter().find(|kind| kind.by.iter().any(|start| by.starts_with(start)))
    }
}

/// The folder that the symbols have in place of the workspace's.
const TREE: &str = "ndkrocev2/";
/// The folders of our crates in it.
const OURS: &[&str] = &["driver/", "netadapter-glue/", "rocev2/"];

/// A place that panics, as the symbols know it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Panic {
    /// The file of the innermost function of ours, or of the innermost at all.
    pub(crate) file: String,
    pub(crate) line: u32,
    /// The function that panics.
    pub(crate) by: String,
}

/// Behind each call of a function that panics, by one that does not; and the name of the first.
pub(crate) fn sites(graph: &Graph, names: &BTreeMap<u32, String>) -> Vec<(u32, String)> {
    let panics = |function: &u32| {
        let name = names.get(function)?;
        PANICS.iter().any(|start| name.starts_with(start)).then_some(name)
    };
    let callers = graph.0.iter().filter(|(begin, _)| panics(begin).is_none());
    let sites = callers.flat_map(|(_, function)| &function.sites);
    sites.filter_map(|site| Some((site.end, panics(&site.to)?.clone()))).collect()
}

/// The places of the sites; `None` where nothing here reads symbols.
pub(crate) fn places(image: &Path, sites: &[(u32, String)]) -> Option<Vec<Panic>> {
    // The call itself lies before what is behind it.
    let calls: Vec<u32> = sites.iter().map(|(end, _)| end - 1).collect();
    let parts = symbols(image, "--inlines", &calls)?;
    Some(parts.iter().zip(sites).map(|(part, (_, by))| place(part, by)).collect())
}

/// Of lines that take turns: a function, its file with line and column, the innermost first.
fn place(part: &str, by: &str) -> Panic {
    let part = part.replace('\\', "/");
    let frames = part.lines().skip(1).step_by(2).filter_map(|at| {
        let (rest, _column) = at.trim().rsplit_once(':')?;
        let (file, line) = rest.rsplit_once(':')?;
        let file = file.split_once(TREE).map_or(file, |(_, file)| file);
        Some((file.to_owned(), line.parse().ok()?))
    });
    let frames: Vec<(String, u32)> = frames.collect();
    let ours = frames.iter().find(|(file, _)| OURS.iter().any(|start| file.starts_with(start)));
    let (file, line) = ours.or(frames.first()).cloned().unwrap_or_default();
    Panic { file, line, by: by.to_owned() }
}

/// How many of the places each file has.
pub(crate) fn by_file<'a>(places: impl Iterator<Item = &'a Panic>) -> BTreeMap<&'a str, usize> {
    let mut files = BTreeMap::new();
    for place in places {
        *files.entry(place.file.as_str()).or_default() += 1;
    }
    files
}

#[test]
fn a_place_is_that_of_the_innermost_function_of_ours() {
    let part = "core::slice::index\n/rustc/1/library/core/src/slice/index.rs:278:9\n\
                rocev2::cm::slab::get\n./ndkrocev2/rocev2/src/cm/slab.rs:12:3\n\
                driver::turn\n./ndkrocev2/driver/src/turn/mod.rs:1:1\n";
    let found = place(part, "core::panicking::panic_bounds_check");
    assert_eq!((found.file.as_str(), found.line), ("rocev2/src/cm/slab.rs", 12));
    assert_eq!(Kind::of(&found.by).map(|kind| kind.name), Some("bounds"));
    let foreign =
        place("x\n/rustc/1/library/alloc/src/vec.rs:7:1\n", "alloc::alloc::handle_alloc_error");
    assert_eq!((foreign.file.as_str(), foreign.line), ("/rustc/1/library/alloc/src/vec.rs", 7));
}
