//! The rows of the table: what is wanted, and what was measured.

use crate::figures::Figures;
use std::fmt::Write as _;

/// Which side of its floor a figure has to be on.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Sense {
    AtMost,
    AtLeast,
}

/// A line of the table, of one figure or of several in this order.
struct Row {
    what: &'static str,
    sense: Sense,
    /// Empty where figures are only reported. A KB is 1000 bytes.
    floors: &'static [f64],
    aims: &'static [f64],
    decimals: usize,
    measured: fn(&Figures) -> Vec<Option<f64>>,
}

const OPERATIONS: [&str; 3] = ["write", "send", "read"];

const ROWS: &[Row] = &[
    Row {
        what: "Instructions, both ends, through the tables, 32 at a time: WRITE, SEND, READ of 64 B",
        sense: Sense::AtMost,
        floors: &[1200.0, 1400.0, 2400.0],
        aims: &[600.0, 700.0, 1300.0],
        decimals: 0,
        measured: |f| {
            f.each(&["instructions/write_64", "instructions/send_64", "instructions/read_64"])
        },
    },
    Row {
        what: "the same: WRITE of 4 KiB; of 64 KiB in packets of 4 KiB",
        sense: Sense::AtMost,
        floors: &[6200.0, 95_000.0],
        aims: &[5300.0, 86_000.0],
        decimals: 0,
        measured: |f| f.each(&["instructions/write_4096", "instructions/write_65536"]),
    },
    Row {
        what: "beside them: SEND, READ of 4 KiB",
        sense: Sense::AtMost,
        floors: &[],
        aims: &[],
        decimals: 0,
        measured: |f| f.each(&["instructions/send_4096", "instructions/read_4096"]),
    },
    Row {
        what: "Instructions of a WRITE of 64 B at 1,000; 10,000 random QPs",
        sense: Sense::AtMost,
        floors: &[2000.0, 2100.0],
        aims: &[1100.0, 1150.0],
        decimals: 0,
        measured: |f| {
            f.each(&["instructions/write_64_over_1000", "instructions/write_64_over_10000"])
        },
    },
    Row {
        what: "Bytes of an idle connected QP, CQ apart: depth 64/64, 1 element; 512/512, 4; 4096/4096, 4",
        sense: Sense::AtMost,
        floors: &[14_000.0, 170_000.0, 1_300_000.0],
        aims: &[10_000.0, 140_000.0, 1_100_000.0],
        decimals: 0,
        measured: |f| f.each(&["memory/qp/64/1", "memory/qp/512/4", "memory/qp/4096/4"]),
    },
    Row {
        what: "Goodput over lossless at 0.1, 1, 5 % loss, in virtual time at 10 Gb/s and 20 µs: WRITE",
        sense: Sense::AtLeast,
        floors: &[0.92, 0.85, 0.50],
        aims: &[0.97, 0.92, 0.70],
        decimals: 2,
        measured: |f| f.each(&["loss/write/0.1", "loss/write/1", "loss/write/5"]),
    },
    Row {
        what: "the same: READ",
        sense: Sense::AtLeast,
        floors: &[0.90, 0.75, 0.35],
        aims: &[0.95, 0.85, 0.55],
        decimals: 2,
        measured: |f| f.each(&["loss/read/0.1", "loss/read/1", "loss/read/5"]),
    },
    Row {
        what: "the same, in the guest: WRITE",
        sense: Sense::AtLeast,
        floors: &[0.92, 0.85, 0.50],
        aims: &[0.97, 0.92, 0.70],
        decimals: 2,
        measured: |f| f.each(&["guest/loss/write/0.1", "guest/loss/write/1", "guest/loss/write/5"]),
    },
    Row {
        what: "the same, in the guest: READ",
        sense: Sense::AtLeast,
        floors: &[0.90, 0.75, 0.35],
        aims: &[0.95, 0.85, 0.55],
        decimals: 2,
        measured: |f| f.each(&["guest/loss/read/0.1", "guest/loss/read/1", "guest/loss/read/5"]),
    },
    Row {
        what: "WRITE of 4 KiB through the tables, in units: its copies and checksums over the whole",
        sense: Sense::AtLeast,
        floors: &[0.60],
        aims: &[0.80],
        decimals: 2,
        measured: |f| vec![f.over("times/passes/4096", "times/tables/units/4096")],
    },
    Row {
        what: "WRITE of 64 B through the tables over a ring's push and pop",
        sense: Sense::AtMost,
        floors: &[15.0],
        aims: &[8.0],
        decimals: 1,
        measured: |f| vec![f.over("times/tables/plain/64", "times/ring")],
    },
    Row {
        what: "Misses of a simulated L2 of 2 MiB, of a WRITE of 64 B at 500; 1,000 QPs",
        sense: Sense::AtMost,
        floors: &[12.0, 16.0],
        aims: &[6.0, 8.0],
        decimals: 1,
        measured: |f| f.each(&["misses/write_64_over_500", "misses/write_64_over_1000"]),
    },
    Row {
        what: "Bytes of an SRQ of 16; of a fast-register region of 512 pages",
        sense: Sense::AtMost,
        floors: &[16_000.0, 6000.0],
        aims: &[4000.0, 4500.0],
        decimals: 0,
        measured: |f| f.each(&["memory/srq/16/1", "memory/frmr/512"]),
    },
    Row {
        what: "Connects a second and core, consumer included",
        sense: Sense::AtLeast,
        floors: &[5000.0],
        aims: &[12_000.0],
        decimals: 0,
        measured: |f| f.each(&["scale/connects"]),
    },
    Row {
        what: "Guest, ours plain over event-driven rxe: WRITE, SEND, READ of 64 B",
        sense: Sense::AtLeast,
        floors: &[2.3, 2.0, 1.3],
        aims: &[3.0, 3.0, 1.6],
        decimals: 2,
        measured: |f| short(f, "plain"),
    },
    Row {
        what: "the same, 4 KiB; 64 KiB at MTU 1500, worst of the three operations",
        sense: Sense::AtLeast,
        floors: &[1.2, 1.1],
        aims: &[1.45, 1.4],
        decimals: 2,
        measured: |f| vec![worst(f, 1500, 4096, "plain"), worst(f, 1500, 65_536, "plain")],
    },
    Row {
        what: "the same, jumbo, 4 KiB; 64 KiB, worst",
        sense: Sense::AtLeast,
        floors: &[1.1, 1.0],
        aims: &[1.35, 1.15],
        decimals: 2,
        measured: |f| vec![worst(f, 9000, 4096, "plain"), worst(f, 9000, 65_536, "plain")],
    },
    Row {
        what: "with offload: WRITE, SEND, READ of 64 B; worst of all rows",
        sense: Sense::AtLeast,
        floors: &[6.0, 5.0, 3.0, 1.7],
        aims: &[8.0, 7.0, 4.0, 1.85],
        decimals: 2,
        measured: |f| {
            let all =
                [1500, 9000].into_iter().flat_map(|mtu| [64, 4096, 65_536].map(|size| (mtu, size)));
            let worst = least(all.map(|(mtu, size)| worst(f, mtu, size, "offload")));
            let mut measured = short(f, "offload");
            measured.push(worst);
            measured
        },
    },
    Row {
        what: "Round trip of 64 B, one at a time, over event-driven rxe's: WRITE, READ, SEND",
        sense: Sense::AtMost,
        floors: &[1.0, 1.0, 1.2],
        aims: &[0.7, 0.7, 0.7],
        decimals: 2,
        measured: |f| {
            let ratio = |operation| {
                let rate = |client| format!("guest/1500/{operation}/64/1/{client}");
                f.over(&rate("events"), &rate("plain"))
            };
            ["write", "read", "send"].map(ratio).to_vec()
        },
    },
    Row {
        what: "beside them, µs: rxe's WRITE; a raw echo",
        sense: Sense::AtMost,
        floors: &[],
        aims: &[],
        decimals: 1,
        measured: |f| {
            let rxe = f.get("guest/1500/write/64/1/events").map(|rate| 1e6 / rate);
            vec![rxe, f.get("guest/raw/echo").map(|echo| echo / 1e3)]
        },
    },
    Row {
        what: "AF_PACKET messages of 64 B over raw packets",
        sense: Sense::AtLeast,
        floors: &[0.63],
        aims: &[0.82],
        decimals: 2,
        measured: |f| vec![f.over("guest/1500/write/64/128/plain", "guest/raw/frames")],
    },
    Row {
        what: "Packets sent per packet needed, 3 % loss and 5 % reordering, the dearest operation: ours to ours; to a peer \
               that drops what comes early",
        sense: Sense::AtMost,
        floors: &[1.13, 1.80],
        aims: &[1.04, 1.40],
        decimals: 2,
        measured: |f| f.each(&["resends/ours", "resends/dropper"]),
    },
    Row {
        what: "Allocations of a message; CPU with 10,000 idle QPs, %",
        sense: Sense::AtMost,
        floors: &[0.0, 1.0],
        aims: &[],
        decimals: 1,
        measured: |f| f.each(&["allocations/messages", "scale/idle"]),
    },
    Row {
        what: "Size of `ndkrocev2.sys`",
        sense: Sense::AtMost,
        floors: &[],
        aims: &[],
        decimals: 0,
        measured: |f| f.each(&["image/size"]),
    },
];

/// Messages of 64 B at MTU 1500 over those of rxe under the program that sleeps.
fn short(figures: &Figures, client: &str) -> Vec<Option<f64>> {
    OPERATIONS.map(|operation| ratio(figures, 1500, operation, 64, client)).to_vec()
}

/// The least such quotient among the operations.
fn worst(figures: &Figures, mtu: u16, size: u32, client: &str) -> Option<f64> {
    least(OPERATIONS.map(|operation| ratio(figures, mtu, operation, size, client)).into_iter())
}

fn ratio(figures: &Figures, mtu: u16, operation: &str, size: u32, client: &str) -> Option<f64> {
    let rate = |client| format!("guest/{mtu}/{operation}/{size}/128/{client}");
    figures.over(&rate(client), &rate("events"))
}

fn least(mut figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    figures.try_fold(f64::INFINITY, |least, figure| Some(least.min(figure?)))
}

/// The table in Markdown. A row without figures is there all the same.
pub(crate) fn table(figures: &Figures) -> String {
    let mut table =
        String::from("| | Measured | Floor | Aim | Floor met |\n| --- | --- | --- | --- | --- |\n");
    for row in ROWS {
        let measured = (row.measured)(figures);
        let wanted = |figures: &[f64]| row.show(figures.iter().map(|figure| Some(*figure)));
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            row.what,
            row.show(measured.iter().copied()),
            wanted(row.floors),
            wanted(row.aims),
            row.verdict(&measured)
        );
    }
    table
}

impl Row {
    fn show(&self, figures: impl Iterator<Item = Option<f64>>) -> String {
        let each: Vec<_> = figures
            .map(|figure| figure.map_or("-".into(), |figure| number(figure, self.decimals)))
            .collect();
        each.join("; ")
    }

    /// How many of the figures that were measured are on the right side of their floors, unless all are.
    fn verdict(&self, measured: &[Option<f64>]) -> String {
        let meets = |(figure, floor): (&Option<f64>, &f64)| match (self.sense, figure) {
            (_, None) => None,
            (Sense::AtMost, Some(figure)) => Some(figure <= floor),
            (Sense::AtLeast, Some(figure)) => Some(figure >= floor),
        };
        let each: Vec<bool> = measured.iter().zip(self.floors).filter_map(meets).collect();
        match (each.iter().filter(|met| **met).count(), each.len()) {
            (_, 0) => String::new(),
            (met, _) if met == self.floors.len() => "yes".into(),
            (0, _) => "no".into(),
            (met, all) => format!("{met} of {all}"),
        }
    }
}

/// With a comma behind the thousands.
fn number(figure: f64, decimals: usize) -> String {
    let figure = format!("{figure:.decimals$}");
    let (whole, rest) = figure.split_at(figure.find('.').unwrap_or(figure.len()));
    let mut parts: Vec<&str> =
        whole.as_bytes().rchunks(3).filter_map(|part| str::from_utf8(part).ok()).collect();
    parts.reverse();
    parts.join(",") + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_floor() {
        for row in ROWS {
            let figures = (row.measured)(&Figures::default()).len();
            assert!([0, figures].contains(&row.floors.len()), "{}", row.what);
            assert!([0, figures].contains(&row.aims.len()), "{}", row.what);
        }
    }

    #[test]
    fn floors_are_met_or_not() {
        let mut figures = Figures::default();
        figures.read("memory/srq/16/1 4063\nmemory/frmr/512 7000\nloss/read/1 0.75\n");
        let table = table(&figures);
        assert!(
            table.contains("| 4,063; 7,000 | 16,000; 6,000 | 4,000; 4,500 | 1 of 2 |"),
            "{table}"
        );
        assert!(
            table.contains("| -; 0.75; - | 0.90; 0.75; 0.35 | 0.95; 0.85; 0.55 | 1 of 1 |"),
            "{table}"
        );
    }
}
