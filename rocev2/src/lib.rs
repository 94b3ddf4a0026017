//! The RoCEv2 transport as a sans-IO library.
#![no_std]
