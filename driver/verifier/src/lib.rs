//! Two layers between a consumer and the NDK tables of its provider, both off unless used.
//!
//! | Layer | Does |
//! | --- | --- |
//! | [`Verifier`] | reports the rules of NDKPI that the consumer breaks: call, object, rule |
//! | [`Explorer`] | ends calls in every way that the contract allows, as a seed chooses: inline, by a callback before the return, on another thread, late, refused; with other versions and limits |
//!
//! Each is an [`Opener`] around another one, so they work for every consumer that opens its adapters by an `Opener`, in Rust or
//! C, with threads or in a simulation. [`wrap`] puts on what a [`Config`] names; [`explore`] runs a consumer for many
//! seeds over two providers that are joined in memory, on a virtual clock.
//!
//! ```
//! use ndk_verifier::{Limits, Config};
//!
//! let config: Config = "verify,explore=17,limits=small".parse()?;
//! assert_eq!(config.explore.map(|explore| (explore.seed, explore.limits)), Some((17, Limits::Small)));
//! # Ok::<(), ndk_verifier::ConfigError>(())
//! ```
#![allow(unsafe_code, reason = "stands between C functions")]

mod config;
mod explorer;
mod lab;
mod layer;
mod verifier;

pub use config::{Config, ConfigError, wrap};
pub use explorer::{Choice, Explore, Explorer, Limits, Versions, Way};
pub use lab::{Host, Lab, Run, explore};
pub use layer::Kind;
pub use ndk_consumer::Opener;
pub use verifier::{Report, Rule, Sink, Verifier, Verify};
