//! What is measured, and in which order.

use std::fmt;

pub(crate) const OPERATIONS: [&str; 3] = ["write", "send", "read"];
pub(crate) const SIZES: [u32; 3] = [64, 4096, 65_536];
pub(crate) const MTUS: [u16; 2] = [1500, 9000];
/// Requests at once: perftest's own.
pub(crate) const DEPTH: u32 = 128;
/// Percent of the frames of either side. The first is what the others are measured by: it loses none of so few frames,
/// but has them pass the program that loses them, whose copies take a third of the goodput.
pub(crate) const LOSSES: [&str; 4] = ["0.00001", "0.1", "1", "5"];
const LOSS_OPERATIONS: [&str; 2] = ["write", "read"];
/// Of the losses, which then strike others.
const SEEDS: [u32; 2] = [1, 2];
/// The frame of a WRITE of 64 bytes: Ethernet, IPv4, UDP, BTH, RETH, ICRC around it.
const RAW: u32 = 14 + 20 + 8 + 12 + 16 + 64 + 4;
pub(crate) const BURST: u32 = 20_000;
pub(crate) const ECHOES: u32 = 1000;

/// One of those that are compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Client {
    /// rxe under perftest.
    Perftest,
    /// rxe under a program that sleeps for its completions.
    Events,
    /// `ndkperf`, packet by packet.
    Plain,
    /// `ndkperf` with units of many packets.
    Offload,
}

impl Client {
    pub(crate) const ALL: [Self; 4] = [Self::Perftest, Self::Events, Self::Plain, Self::Offload];

    /// Whether it measures this load: perftest has a program of its own for round trips, and one packet is no unit.
    pub(crate) fn takes(self, load: Load) -> bool {
        match self {
            Self::Perftest | Self::Offload => load.depth == DEPTH,
            Self::Events | Self::Plain => true,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perftest => "perftest",
            Self::Events => "events",
            Self::Plain => "plain",
            Self::Offload => "offload",
        })
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Load {
    pub mtu: u16,
    pub operation: &'static str,
    pub size: u32,
    pub depth: u32,
}

impl Load {
    /// Streams of every size at both MTUs, and round trips of the smallest at the first.
    pub(crate) fn all() -> Vec<Self> {
        let of = |mtu, size, depth| {
            OPERATIONS.map(|operation| Self { mtu, operation, size, depth }).into_iter()
        };
        let streams = MTUS
            .into_iter()
            .flat_map(|mtu| SIZES.into_iter().flat_map(move |size| of(mtu, size, DEPTH)));
        streams.chain(of(MTUS[0], SIZES[0], 1)).collect()
    }

    pub(crate) fn count(self) -> u32 {
        match (self.size, self.depth) {
            (_, 1) => 1000,
            (64, _) => 3000,
            (4096, _) => 1500,
            _ => 200,
        }
    }

    /// The line of the script that measures it.
    fn line(self, client: Client, round: u32) -> String {
        let Self { mtu, operation, size, depth } = self;
        let name = name(self, client, round);
        let load = format!("{name} {operation} {size} {} {depth}", self.count());
        match client {
            Client::Perftest => format!("perftest {load} {}", if mtu < 4200 { 1024 } else { 4096 }),
            Client::Events => format!("events {load}"),
            Client::Plain => format!("ours {load}"),
            Client::Offload => format!("ours {load} --offload"),
        }
    }
}

pub(crate) struct Plan {
    pub loads: Vec<Load>,
    pub rounds: u32,
}

impl Plan {
    pub(crate) fn measurements(&self) -> impl Iterator<Item = (Load, Client)> {
        self.loads.iter().flat_map(|load| {
            let clients = Client::ALL.into_iter().filter(|client| client.takes(*load));
            clients.map(|client| (*load, client))
        })
    }

    /// All clients of a load in turn, all loads, and that again.
    pub(crate) fn script(&self) -> String {
        (1..=self.rounds).flat_map(|round| self.round(round)).map(|line| line + "\n").collect()
    }

    fn round(&self, round: u32) -> Vec<String> {
        let mut lines = vec![
            format!("burst {} {RAW} {BURST}", burst_name(round)),
            format!("echoes {} {RAW} {ECHOES}", echoes_name(round)),
        ];
        for mtu in MTUS {
            lines.push(format!("mtu {mtu}"));
            let here = self.measurements().filter(|(load, _)| load.mtu == mtu);
            lines.extend(here.map(|(load, client)| load.line(client, round)));
        }
        // Once is enough: a seed gives the same losses again.
        let losses = losses().filter(|_| round == 1);
        lines.extend(losses.map(|(operation, loss, seed)| {
            format!("loss {} {operation} {loss} {seed}", loss_name(operation, loss, seed))
        }));
        lines
    }
}

/// Operation, percent lost, seed.
pub(crate) fn losses() -> impl Iterator<Item = (&'static str, &'static str, u32)> {
    LOSS_OPERATIONS.into_iter().flat_map(|operation| {
        LOSSES
            .into_iter()
            .flat_map(move |loss| SEEDS.into_iter().map(move |seed| (operation, loss, seed)))
    })
}

pub(crate) fn name(load: Load, client: Client, round: u32) -> String {
    let Load { mtu, operation, size, depth } = load;
    format!("{mtu}-{operation}-{size}-{depth}-{client}-{round}")
}

pub(crate) fn burst_name(round: u32) -> String {
    format!("burst-{round}")
}

pub(crate) fn echoes_name(round: u32) -> String {
    format!("echoes-{round}")
}

pub(crate) fn loss_name(operation: &str, loss: &str, seed: u32) -> String {
    format!("loss-{operation}-{loss}-{seed}")
}
