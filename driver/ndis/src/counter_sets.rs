//! The performance counter sets that Windows shows. The image registers them, its strings name them, and
//! `inf/ndkrocev2.man` describes them. The image's build script compiles this file, too.

use rocev2::counters::{Counter, Scope};

/// Values of one instance: all counters of the transport, and the drops of the edge.
pub const VALUES: usize = Counter::COUNT + EDGE.len();
/// The edge's values, behind the transport's.
const EDGE: [&str; 3] = ["edge_transmit_drops", "edge_receive_drops", "edge_refused"];
/// A query selects counters by the bits of a word.
const LIMIT: usize = 64;

/// A set.
#[derive(Clone, Copy, Debug)]
pub struct CounterSet {
    /// Its name for people and scripts.
    pub name: &'static str,
    /// The set's subject.
    pub about: &'static str,
    /// Its identity for the system.
    pub guid: &'static str,
    scope: Scope,
}

/// All sets.
pub const SETS: [CounterSet; 3] = [
    CounterSet {
        name: "RoCEv2 Adapter",
        about: "What the connections of an adapter count, all together. An instance is an interface index.",
        guid: "{5b0f4f5e-53c5-4a0e-9d5a-7d0f1c1b6a01}",
        scope: Scope::Qp,
    },
    CounterSet {
        name: "RoCEv2 Adapter Drops",
        about: "What belongs to no connection and had no effect. An instance is an interface index.",
        guid: "{5b0f4f5e-53c5-4a0e-9d5a-7d0f1c1b6a02}",
        scope: Scope::Device,
    },
    CounterSet {
        name: "RoCEv2 Connection",
        about: "What one connection counts. An instance is a queue pair and both ends.",
        guid: "{5b0f4f5e-53c5-4a0e-9d5a-7d0f1c1b6a03}",
        scope: Scope::Qp,
    },
];

/// A counter of a set, by its value's place in an instance. Its ID is its place in the set.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Index of the value.
    pub value: usize,
    /// Its name.
    pub name: &'static str,
}

impl CounterSet {
    /// The counters, each at the place of its ID.
    pub const fn members(&self) -> Members {
        let mut members = Members { list: [Member { value: 0, name: "" }; LIMIT], len: 0 };
        let mut at = 0;
        while at < Counter::COUNT {
            let counter = Counter::ALL[at];
            if matches!(counter.scope(), Scope::Qp) == matches!(self.scope, Scope::Qp) {
                members.push(at, counter.name());
            }
            at += 1;
        }
        while at < VALUES && matches!(self.scope, Scope::Device) {
            members.push(at, EDGE[at - Counter::COUNT]);
            at += 1;
        }
        members
    }
}

/// The counters of a set.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    list: [Member; LIMIT],
    len: usize,
}

impl Members {
    const fn push(&mut self, value: usize, name: &'static str) {
        assert!(self.len < LIMIT, "a set of its own for so many");
        self.list[self.len] = Member { value, name };
        self.len += 1;
    }

    /// The number of counters.
    pub const fn count(&self) -> usize {
        self.len
    }

    /// The counter with this ID.
    pub const fn get(&self, id: usize) -> Member {
        self.list[id]
    }
}

/// The number in the image's resources of a set's name; its description follows, then name and description
/// of each counter.
pub const fn string_id(set: usize) -> usize {
    1024 * (set + 1)
}

/// Each string with its number, in ascending order.
pub fn strings() -> impl Iterator<Item = (usize, &'static str)> {
    SETS.iter().enumerate().flat_map(|(number, set)| {
        let members = set.members();
        let own = [set.name, set.about].into_iter();
        let others = (0..members.count()).flat_map(move |id| [members.get(id).name; 2]);
        own.chain(others).enumerate().map(move |(at, text)| (string_id(number) + at, text))
    })
}
