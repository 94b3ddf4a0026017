//! The NDK provider.
#![no_std]
