//! The cells, and how address family, path MTU and kernel are spread over them.

use std::collections::BTreeSet;
use std::fmt;

use crate::event::Event;
use crate::program::Program;

/// The guest's kernel, by Debian's suite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kernel {
    Bookworm,
    Trixie,
    Backports,
}

impl Kernel {
    pub(crate) const ALL: [Self; 3] = [Self::Bookworm, Self::Trixie, Self::Backports];

    pub(crate) const fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Backports => "trixie-backports",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "6.1",
            Self::Trixie => "6.12",
            Self::Backports => "newest",
        }
    }
}

/// The address family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// One run of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) program: &'static Program,
    pub(crate) event: Event,
    pub(crate) family: Family,
    pub(crate) path_mtu: u16,
    pub(crate) kernel: Kernel,
}

impl fmt::Display for Cell {
    /// Its name: no other has the same program and the same event.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.program.name, self.event.name())
    }
}

/// Each program under each of its events, once. Of some ways to spread what else a cell has, the one in which the
/// most pairs of properties meet.
pub(crate) fn cells(programs: &'static [Program]) -> Vec<Cell> {
    let ways = (0..WAYS).map(|way| spread(programs, way));
    let met = |cells: &Vec<Cell>| cells.iter().flat_map(pairs).collect::<BTreeSet<_>>().len();
    ways.max_by_key(met).expect("there are ways")
}

/// Chooses one cell after the other, so that it meets as many pairs as possible that no cell before has met.
fn spread(programs: &'static [Program], way: usize) -> Vec<Cell> {
    let mut met = BTreeSet::new();
    let mut cells = Vec::new();
    for program in programs {
        for event in program.events() {
            let candidates = choices(program, event);
            let new = |cell: &Cell| pairs(cell).difference(&met).count();
            let most = candidates.iter().map(new).max().expect("a program has a kernel");
            // Of equal ones not always the first, or one kernel had them all.
            let best: Vec<_> = candidates.iter().filter(|cell| new(cell) == most).collect();
            let cell = *best[(cells.len() + way * (cells.len() % 3 + 1)) % best.len()];
            met.extend(pairs(&cell));
            cells.push(cell);
        }
    }
    cells
}

/// All that a cell of this program and event could be.
fn choices(program: &'static Program, event: Event) -> Vec<Cell> {
    let kernels = program.kernels.iter();
    kernels
        .flat_map(|kernel| program.families.iter().map(|family| (*kernel, *family)))
        .flat_map(|(kernel, family)| PATH_MTUS.map(|path_mtu| (kernel, family, path_mtu)))
        .map(|(kernel, family, path_mtu)| Cell { program, event, family, path_mtu, kernel })
        .collect()
}

/// The pairs of properties that a cell has.
fn pairs(cell: &Cell) -> BTreeSet<[String; 2]> {
    let properties = [
        cell.program.name.to_string(),
        cell.event.name().to_string(),
        cell.family.name().to_string(),
        cell.path_mtu.to_string(),
        cell.kernel.name().to_string(),
    ];
    let behind = |at: usize| properties[at + 1..].iter().map(move |other| (at, other));
    let pairs = (0..properties.len()).flat_map(behind);
    pairs.map(|(at, other)| [properties[at].clone(), other.clone()]).collect()
}

const WAYS: usize = 12;
pub(crate) const PATH_MTUS: [u16; 2] = [1024, 4096];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;

    /// Every pair that some cell could have is had by one, but for those of an event that has too few cells.
    #[test]
    fn every_pair_is_met() {
        let cells = cells(PROGRAMS);
        let had: BTreeSet<_> = cells.iter().flat_map(pairs).collect();
        let rare = |cell: &Cell| {
            cells.iter().filter(|other| other.event == cell.event).count() < Kernel::ALL.len()
        };
        for cell in cells.iter().filter(|cell| !rare(cell)) {
            let possible = choices(cell.program, cell.event);
            let missed: BTreeSet<_> = possible.iter().flat_map(pairs).collect();
            let missed: Vec<_> = missed.difference(&had).collect();
            assert!(missed.is_empty(), "{missed:?}");
        }
    }

    #[test]
    fn no_name_is_given_twice() {
        let cells = cells(PROGRAMS);
        let names: BTreeSet<_> = cells.iter().map(Cell::to_string).collect();
        assert_eq!(names.len(), cells.len());
    }
}
