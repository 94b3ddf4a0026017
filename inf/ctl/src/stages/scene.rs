//! A machine during a stage: its NICs, the adapters on them, and the checks.

use anyhow::{Context, Result, bail, ensure};

use super::lines::{End, Lines};
use super::nics::{self, Maker};
use super::remains::Remains;
use super::{Asked, consumer, evidence};
use crate::flight::{rping, vnic};
use crate::journal::Journals;
use crate::machine::{IpSettings, Machine, Mode, Nic, Vnic};
use crate::plan::Request;
use crate::run::{Installed, confirm, enter, forwards, install, uninstall};
use crate::step::Step;
use crate::verify::{Outcome, Verdict};

/// Longer than any stage; a machine that starts anew rolls back.
const STAGE_S: u64 = 3600;

pub(super) struct Scene<'a, M> {
    pub(super) machine: &'a mut M,
    pub(super) asked: &'a Asked,
    pub(super) lines: Lines<'a>,
    /// Two, where the stage has any.
    pub(super) nics: Vec<Nic>,
    pub(super) maker: Option<Maker>,
    /// Whether the machine was found bare: whatever is on it then is the stage's.
    is_ours: bool,
    /// Those that the stage itself has taken away, by their names.
    pub(super) gone: Vec<String>,
    before: Option<Remains>,
}

/// The names of the adapters on the first and second NIC.
pub(super) const NAMES: [&str; 2] = ["RoCEv2", "RoCEv2 2"];

impl<'a, M: Machine> Scene<'a, M> {
    pub(super) fn new(machine: &'a mut M, asked: &'a Asked, lines: Lines<'a>) -> Self {
        Self {
            machine,
            asked,
            lines,
            nics: Vec::new(),
            maker: None,
            gone: Vec::new(),
            is_ours: false,
            before: None,
        }
    }

    pub(super) fn check(
        &mut self,
        name: &str,
        run: impl FnOnce(&mut M) -> Result<Verdict>,
    ) -> Result<(), End> {
        let ended = run(self.machine);
        self.lines.check(name, ended)
    }

    /// As [`check`](Self::check), where the stage goes on without it.
    pub(super) fn may_skip(
        &mut self,
        name: &str,
        run: impl FnOnce(&mut M) -> Result<Verdict>,
    ) -> Result<Outcome, End> {
        match self.check(name, run) {
            Ok(()) => Ok(Outcome::Passed),
            Err(End::Skipped(_)) => Ok(Outcome::Skipped),
            Err(failed) => Err(failed),
        }
    }

    pub(super) fn prepare(&mut self) -> Result<(), End> {
        self.check("machine", |machine| {
            ensure!(Journals::read(machine)?.adapters.is_empty(), "an adapter is installed");
            ensure!(machine.awaits_restart()?.is_none(), "Windows waits for a restart");
            Ok(Verdict::Passed("nothing is installed".into()))
        })?;
        self.is_ours = true;
        if !self.asked.stage.has_nics() {
            return Ok(());
        }
        // Without either the stage shows less, and its lines say so.
        let or_skip = |_| Ok(Verdict::Skipped("this Windows does not do it now"));
        self.may_skip("Driver Verifier", |machine| evidence::watch(machine).or_else(or_skip))?;
        let out = &self.asked.out;
        self.may_skip("trace", |machine| evidence::trace(machine, out).or_else(or_skip))?;
        self.make_nics()
    }

    fn make_nics(&mut self) -> Result<(), End> {
        match nics::make(self.machine, &self.asked.nics, self.asked.duonic.as_deref()) {
            Ok((maker, nics)) => {
                self.maker = Some(maker);
                self.nics = nics;
            }
            Err(why) => {
                return Err(End::Skipped(format!("this machine makes no NICs: {why}")));
            }
        }
        let names = self.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
        self.before = Some(self.remains().map_err(failed)?);
        self.check("NICs", |_| Ok(Verdict::Passed(names)))
    }

    fn remains(&mut self) -> Result<Remains> {
        let package = self.asked.package()?;
        Remains::read(self.machine, &package)
    }

    /// Takes all away that the stage made.
    pub(super) fn leave(&mut self) -> Result<(), End> {
        if !self.is_ours {
            return Ok(());
        }
        let left = self.take_away();
        if let Some(maker) = self.maker.take() {
            // They are the machine's own then, which is thrown away.
            let _ = maker.unmake(self.machine);
        }
        left
    }

    fn take_away(&mut self) -> Result<(), End> {
        self.uninstall()?;
        self.as_before()
    }

    pub(super) fn uninstall(&mut self) -> Result<(), End> {
        self.check("uninstalling", |machine| {
            uninstall(machine, None, &mut |_| {})?;
            Ok(Verdict::Passed("done".into()))
        })
    }

    pub(super) fn as_before(&mut self) -> Result<(), End> {
        let Some(before) = self.before.clone() else { return Ok(()) };
        let after = self.remains();
        let gone = self.gone.clone();
        self.check("as it was", |_| before.compare(&after?, &gone))
    }

    /// What would install the adapter of this number on the NIC of this number.
    pub(super) fn request(&self, number: usize, mode: Mode) -> Result<Request> {
        let settings = match mode {
            Mode::Inherit => IpSettings::default(),
            Mode::Own | Mode::Share => nics::address([1, 2][number]),
        };
        Ok(Request {
            nic: self.nics[number].name.clone(),
            mode,
            package: self.asked.package()?,
            name: NAMES[number].into(),
            settings,
            confirm_within_s: Some(STAGE_S),
        })
    }

    pub(super) fn install(&mut self, number: usize, mode: Mode) -> Result<(), End> {
        let request = self.request(number, mode);
        self.check("installation", |machine| {
            let installed = install(machine, &request?, &mut |_| {})?;
            ensure!(installed == Installed::Now, "{installed:?}: Windows waits for a restart");
            confirm(machine, Some(NAMES[number]))?;
            Ok(Verdict::Passed(NAMES[number].into()))
        })
    }

    /// Makes the steps before the first of this kind.
    pub(super) fn install_before(&mut self, kind: fn(&Step) -> bool) -> Result<(), End> {
        let request = self.request(0, Mode::Own);
        self.check("installation", |machine| {
            let mut journals = Journals::read(machine)?;
            let at = enter(machine, &mut journals, &request?, &mut |_| {})?;
            let entries = &journals.adapters[at].entries;
            let end = entries.iter().position(|entry| kind(&entry.step)).context("no such step")?;
            forwards(machine, &mut journals, at, end, &mut |_| {})?;
            Ok(Verdict::Passed(format!("{end} steps")))
        })
    }

    /// The device of the adapter of this number.
    pub(super) fn device(&mut self, number: usize) -> Result<String, End> {
        let journals = Journals::read(self.machine).map_err(failed)?;
        let known = journals.position(NAMES[number]).map(|at| journals.adapters[at].device.clone());
        known.ok_or_else(|| End::Failed(format!("'{}' has no journal", NAMES[number])))
    }

    pub(super) fn vnic(&mut self, number: usize) -> Result<Vnic, End> {
        let device = self.device(number)?;
        vnic(self.machine, &device).map_err(failed)
    }

    /// Bytes from one adapter to the other, or to itself, by each consumer that is here; skipped where none is.
    pub(super) fn move_bytes(&mut self, client: usize, server: usize) -> Result<(), End> {
        let consumer = self.fly_consumer(client, server)?;
        let rping = self.rping(client, server)?;
        if [consumer, rping].contains(&Outcome::Passed) {
            return Ok(());
        }
        Err(End::Skipped(
            "no consumer of NDK is here: neither ndkflight.sys nor NdkPerfCmd nor NDKPing".into(),
        ))
    }

    pub(super) fn fly_consumer(&mut self, client: usize, server: usize) -> Result<Outcome, End> {
        let package = self.asked.package();
        let (from, to) = (self.vnic(client)?.index, self.vnic(server)?.index);
        let to = (from != to).then_some(to);
        let ended =
            self.may_skip("ndkflight.sys", |machine| consumer::fly(machine, &package?, from, to))?;
        Ok(self.count(ended))
    }

    pub(super) fn rping(&mut self, client: usize, server: usize) -> Result<Outcome, End> {
        let (from, to) = (self.vnic(client)?, self.vnic(server)?);
        let ended = self.may_skip("rping", |machine| {
            let (own, peer) = (own_address(machine, &from)?, own_address(machine, &to)?);
            let server = rping::End { ip: peer, index: Some(to.index) };
            rping::run(machine, own, from.index, server)
        })?;
        Ok(self.count(ended))
    }

    pub(super) fn count(&mut self, ended: Outcome) -> Outcome {
        if ended == Outcome::Passed {
            self.lines.saw_rdma();
        }
        ended
    }
}

fn own_address(machine: &mut impl Machine, vnic: &Vnic) -> Result<std::net::IpAddr> {
    let settings = machine.ip_settings(&vnic.guid)?;
    let mut v4 =
        settings.addresses.iter().map(|address| address.ip).filter(std::net::IpAddr::is_ipv4);
    match v4.next() {
        Some(ip) => Ok(ip),
        None => bail!("'{}' has no IPv4 address", vnic.name),
    }
}

pub(super) fn failed(error: anyhow::Error) -> End {
    End::Failed(format!("{error:#}"))
}
