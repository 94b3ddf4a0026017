//! Shared pieces of the test targets.
//!
//! Beside `cargo test`, five tools look at the crates from elsewhere; `.ci/run` calls them all, some of them on their day:
//!
//! ```text
//! .ci/coverage                                                    lines of rocev2's code that its tests run
//! RUSTFLAGS="--cfg loom" cargo test -p driver -p ndis-driver -p netadapter-glue --lib --target-dir target/loom -- loom token
//! MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p driver --lib -- shard:: sync:: ndk:: abi::
//! RUSTFLAGS="-Zsanitizer=thread --cfg tsan" cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/tsan -p tests --test cores
//! cargo fuzz run --fuzz-dir tests/fuzz --sanitizer none packet    or another target of tests/fuzz/src/lib.rs
//! ```
#![allow(clippy::macro_metavars_in_unsafe, reason = "whole C calls are arguments of `call`")]

/// The folder of the workspace.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub mod alloc;
#[path = "../ndkpi/documented/mod.rs"]
pub mod documented;
pub mod figures;
pub mod kit;
#[path = "../lab/mod.rs"]
pub mod lab;
pub mod rng;
pub mod sim;
pub mod switch;
