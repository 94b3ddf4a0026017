//! Goal: the headers say what the ABI room and the library's interface say, all of it and nothing else.
//! Method: the sources are read, the outlines in `headers` filled in, and the result is compared with the files in
//! `include`. `HEADERS=write cargo test -p ndk-c --test headers` writes them anew.

#[path = "headers/outline.rs"]
mod outline;
#[path = "headers/render.rs"]
mod render;
#[path = "headers/room.rs"]
mod room;

use std::path::{Path, PathBuf};
use std::{env, fs};

use room::Room;

/// Each header, by its name in `include`.
const HEADERS: &[&str] = &["ndkbase.h", "ndkinfo.h", "ndkpi.h", "ndkrocev2.h", "wskndk.h"];
/// A declaration that no header has: an anonymous union in C.
const LEFT_OUT: &str = "NDK_SGE_ADDRESS";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The generated files, by their paths, as they should be.
fn generated() -> Vec<(PathBuf, String)> {
    let (provider, library) = (Room::of_the_provider(), Room::of_the_library());
    let headers = HEADERS.iter().map(|name| {
        let outline = file(&format!("headers/{name}.in"));
        let text = fs::read_to_string(&outline).expect("the outline exists");
        let room = if *name == "ndkrocev2.h" { &library } else { &provider };
        (file(&format!("include/{name}")), outline::header(&text, room))
    });
    let mut files: Vec<_> = headers.collect();
    let facts = outline::facts(&[&provider, &library], LEFT_OUT);
    files.push((file("tests/layout/facts.rs"), facts));
    files
}

#[test]
fn headers_are_fresh() {
    let write = env::var_os("HEADERS").is_some_and(|how| how == "write");
    for (path, text) in generated() {
        if write {
            fs::write(&path, &text).expect("the file can be written");
        }
        let is = fs::read_to_string(&path).unwrap_or_default();
        let line = (1..).zip(is.lines().zip(text.lines())).find(|(_, (is, should))| is != should);
        assert!(
            is == text,
            "{} is stale, first at {line:?}: HEADERS=write cargo test -p ndk-c --test headers",
            path.display()
        );
    }
}

#[test]
fn every_declaration_has_a_header() {
    let texts: Vec<_> = generated().into_iter().map(|(_, text)| text).collect();
    // The last is the list of facts, which has everything.
    let headers = texts[..HEADERS.len()].join("\n");
    let words: Vec<_> = headers.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for room in [Room::of_the_provider(), Room::of_the_library()] {
        for item in room.all() {
            assert!(words.contains(&&*item.name) != (item.name == LEFT_OUT), "{}", item.name);
        }
    }
}

#[test]
fn declarations_are_written_as_c() {
    let room = Room::parse(
        r#"
        /// A pair of [`USHORT`], as [`here`](https://x.y/z).
        #[repr(C)]
        pub struct PAIR { pub first: u16, /** The second. */ pub rest: [USHORT; 3], pub cell: UnsafeCell<*const PAIR> }
        #[repr(transparent)]
        pub struct KIND(pub i32);
        pub const KindOne: KIND = KIND(0x8001);
        pub const FLAG_ALL: ULONG = 0x0000_0030;
        pub const COMPUTED: ULONG = 1 << 3;
        pub type FN_CALL = unsafe extern "system" fn(a: *mut *mut PAIR, b: Option<FN_OTHER>) -> NTSTATUS;
        statuses! { STATUS_ONE = 0xC000_0001, }
        table! { /// Of pairs.
            PAIR_DISPATCH, 0x8 { 0 Call: FN_CALL, } }
        objects! { OBJECT: Kind, PAIR_DISPATCH; }
        "#,
    );
    let outline = "first\n@item PAIR KIND\n@constants FLAG_\n@statuses\n@handles\n@pointers\n@tables\n@objects\nlast";
    let expected = "first
/* A pair of USHORT, as here. */
typedef struct _PAIR {
    uint16_t first;
    /* The second. */
    USHORT rest[3];
    const PAIR *cell;
} PAIR;

typedef enum _KIND {
    KindOne = 0x8001
} KIND;
#define FLAG_ALL 0x00000030
#define STATUS_ONE ((NTSTATUS)0xC0000001)
typedef struct _OBJECT OBJECT;
typedef NTSTATUS (*FN_CALL)(PAIR **a, FN_OTHER b);
/* Of pairs. */
typedef struct _PAIR_DISPATCH {
    FN_CALL Call;
} PAIR_DISPATCH;
struct _OBJECT {
    NDK_OBJECT_HEADER Header;
    const PAIR_DISPATCH *Dispatch;
};
last
";
    assert_eq!(outline::header(outline, &room), expected);
}
