//! The sizes of a run's messages: one, a list, or the sweep of `perftest`.

use clap::Args;

use crate::perf::SIZE_MAX;

/// How long the messages are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a message (default: 64k, or 2 with --latency); k or KiB and M or MiB are 1024 and 1024².
    /// Of a list, as in 64,4k,64k, each size has a run of its own
    #[arg(short, long = "size", value_delimiter = ',', value_parser = size, value_name = "LIST")]
    sizes: Vec<u32>,
    /// Run every size that is a power of two, from 2 bytes to 8 MiB
    #[arg(short, long, conflicts_with = "sizes")]
    all: bool,
}

impl Sizes {
    /// All of them, in the order of their runs; `default` where none is named.
    pub(crate) fn list(&self, default: u32) -> Vec<u32> {
        match self.sizes[..] {
            _ if self.all => ALL.map(|exponent| 1 << exponent).collect(),
            [] => vec![default],
            _ => self.sizes.clone(),
        }
    }
}

/// Exponents of the sweep, as `perftest` has them.
const ALL: std::ops::RangeInclusive<u32> = 1..=23;

fn size(text: &str) -> Result<u32, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "m" | "M" | "MiB" => 1 << 20,
        _ => return Err("not a size: its unit is k (1024) or M (1024²), as in 64k or 64KiB"),
    };
    let size = digits.parse::<u32>().ok().and_then(|size| size.checked_mul(unit));
    size.filter(|size| (1..=SIZE_MAX).contains(size)).ok_or("not a size from 1 to 512M")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        sizes: Sizes,
    }

    fn sizes(text: &str) -> Result<Sizes, clap::Error> {
        Line::try_parse_from(text.split_whitespace()).map(|line| line.sizes)
    }

    #[test]
    fn sizes_come_in_the_order_in_which_they_are_named() {
        let named = sizes("ndkperf --size 64KiB,1,4k,1M").unwrap();
        assert_eq!(named.list(2), [65_536, 1, 4096, 1 << 20]);
        assert_eq!(sizes("ndkperf").unwrap().list(2), [2]);
        for wrong in ["", "64,", "64,0", "64,513M", "64;4k", "4kB"] {
            assert!(sizes(&format!("ndkperf --size {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_sweep_is_that_of_perftest() {
        for flag in ["-a", "--all"] {
            let all = sizes(&format!("ndkperf {flag}")).unwrap().list(64);
            assert_eq!((all.len(), all[0], all[22]), (23, 2, 8 << 20));
            assert!(all.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{all:?}");
        }
        assert!(sizes("ndkperf -a --size 64").is_err());
    }
}
