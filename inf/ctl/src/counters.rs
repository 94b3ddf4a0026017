//! The driver's performance counters, as typeperf prints them once.

use anyhow::{Result, ensure};

use crate::machine::{Machine, Said};

/// A counter of an instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counter {
    pub(crate) instance: String,
    pub(crate) name: String,
    pub(crate) value: f64,
}

/// All counters of a set, whose name no language translates.
pub(crate) fn read(machine: &mut impl Machine, set: &str) -> Result<Vec<Counter>> {
    let path = format!(r"\{set}(*)\*");
    let Said { code, text } = machine.ask("typeperf.exe", &[&path, "-sc", "1"])?;
    ensure!(code == 0, "typeperf: exit code {code}");
    Ok(parse(&text))
}

/// The sum over all instances.
pub(crate) fn sum(counters: &[Counter], name: &str) -> f64 {
    counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
}

/// A line of paths, then one of values; the first column is the time.
fn parse(text: &str) -> Vec<Counter> {
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let (Some(paths), Some(values)) = (lines.next(), lines.next()) else { return Vec::new() };
    let fields = |line: &str| -> Vec<String> {
        line.trim_matches('"').split("\",\"").map(Into::into).collect()
    };
    let (paths, values) = (fields(paths), fields(values));
    let pairs = paths.iter().zip(&values).skip(1);
    pairs
        .filter_map(|(path, value)| {
            let (path, name) = path.rsplit_once('\\')?;
            let instance = path.split_once('(')?.1.trim_end_matches(')');
            let value = value.trim().parse().ok()?;
            Some(Counter { instance: instance.into(), name: name.into(), value })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As typeperf prints it, with an instance that has brackets of its own.
    #[test]
    fn a_row_is_read() {
        let text = concat!(
            "\r\n\"(PDH-CSV 4.0)\",\"\\\\HOST\\RoCEv2 Connection(17 192.0.2.7:445)\\sent_pkts\",",
            "\"\\\\HOST\\RoCEv2 Connection(18 [2001:db8::7]:445)\\sent_pkts\"\r\n",
            "\"11/25/2026 18:00:00.000\",\"12.000000\",\" \"\r\nExiting, please wait...\r\n",
        );
        let counter =
            Counter { instance: "17 192.0.2.7:445".into(), name: "sent_pkts".into(), value: 12.0 };
        assert_eq!(parse(text), [counter]);
        assert_eq!(parse("Error:\r\nNo valid counters."), []);
    }
}
