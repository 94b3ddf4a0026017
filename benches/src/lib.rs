//! A safe consumer of the NDK dispatch tables.
