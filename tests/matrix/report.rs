//! The tables of what was run.

use std::fmt::Write as _;

use crate::cell::Passed;
use crate::spread::Cell;

/// What became of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Green(Passed),
    Red(String),
    /// This machine lacks something.
    Skipped(String),
}

/// One line of the text table.
pub(crate) fn line(cell: &Cell, outcome: &Outcome) -> String {
    let end = match outcome {
        Outcome::Green(Passed { seconds, packets, twice }) => {
            let twice = twice.map_or_else(|| "?".into(), |twice| twice.to_string());
            format!("{seconds:6.1} s  {packets:6} packets  {twice:>4} twice  green")
        }
        Outcome::Red(why) => {
            format!("RED: {}", why.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        Outcome::Skipped(why) => format!("skipped: {why}"),
    };
    let Cell { family, path_mtu, kernel, .. } = cell;
    let name = cell.to_string();
    format!("{name:32} {} {path_mtu} {:6}  {end}", family.name(), kernel.name())
}

/// The same in Markdown: a row for each event, a column for each program.
pub(crate) fn markdown(results: &[(Cell, Outcome)]) -> String {
    let mut programs: Vec<&str> = Vec::new();
    let mut events: Vec<&str> = Vec::new();
    for (cell, _) in results {
        let (program, event) = (cell.program.name, cell.event.name());
        if !programs.contains(&program) {
            programs.push(program);
        }
        if !events.contains(&event) {
            events.push(event);
        }
    }
    let mut table = format!("| | {} |\n", programs.join(" | "));
    let _ = writeln!(table, "| --- |{}", " --- |".repeat(programs.len()));
    for event in events {
        let _ = write!(table, "| {event} |");
        for program in &programs {
            let found = results
                .iter()
                .find(|(cell, _)| cell.program.name == *program && cell.event.name() == event);
            let text = found.map_or_else(String::new, |(cell, outcome)| entry(cell, outcome));
            let _ = write!(table, " {text} |");
        }
        table.push('\n');
    }
    table
}

fn entry(cell: &Cell, outcome: &Outcome) -> String {
    let end = match outcome {
        Outcome::Green(Passed { seconds, .. }) => format!("{seconds:.1} s"),
        Outcome::Red(_) => "**red**".into(),
        Outcome::Skipped(_) => "skipped".into(),
    };
    format!("{end}; {}, {}, {}", cell.family.name(), cell.path_mtu, cell.kernel.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;
    use crate::spread::cells;

    #[test]
    fn a_red_cell_and_one_that_was_not_run_are_seen() {
        let cells = cells(PROGRAMS);
        let [first, second] = [0, 1].map(|at| cells[at]);
        let green = Outcome::Green(Passed { seconds: 1.25, packets: 7, twice: None });
        let red = Outcome::Red("no data\nin the guest".into());
        assert!(line(&second, &red).ends_with("RED: no data in the guest"));
        let table = markdown(&[(first, green), (second, red)]);
        let rows: Vec<_> = table.lines().collect();
        assert_eq!(rows.len(), 4, "{table}");
        assert!(rows[2].starts_with("| clean | 1.2 s; "), "{table}");
        assert!(rows[3].contains("**red**"), "{table}");
    }
}
