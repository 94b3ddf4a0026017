//! A machine on which one change fails, or during which the program dies.

use std::path::Path;

use anyhow::{Result, bail};

use crate::machine::{
    Certificate, Host, Inf, IpSettings, Kept, Machine, Nic, Said, Stages, Store, Vnic,
};

/// The ways in which a change goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// It is not made, and says so.
    Refused,
    /// It is made, and says that it was not.
    Denied,
    /// The program dies before it.
    DiesBefore,
    /// The program dies after it, before it can write that down.
    DiesAfter,
}

#[cfg(test)]
impl Fault {
    pub(crate) const ALL: [Self; 4] =
        [Self::Refused, Self::Denied, Self::DiesBefore, Self::DiesAfter];
}

/// `machine`, but for its `at`th change.
pub(crate) struct Faulty<M> {
    pub(crate) machine: M,
    pub(crate) changes: u32,
    at: Option<(u32, Fault)>,
    /// Never returns.
    die: fn(),
}

impl<M: Machine> Faulty<M> {
    pub(crate) fn new(machine: M, at: Option<(u32, Fault)>, die: fn()) -> Self {
        Self { machine, changes: 0, at, die }
    }

    fn change<T>(&mut self, make: impl FnOnce(&mut M) -> Result<T>) -> Result<T> {
        self.changes += 1;
        let fault = self.at.filter(|(at, _)| *at == self.changes).map(|(_, fault)| fault);
        if fault == Some(Fault::DiesBefore) {
            (self.die)();
        }
        if fault == Some(Fault::Refused) {
            bail!("change {} is refused", self.changes);
        }
        let made = make(&mut self.machine)?;
        if fault == Some(Fault::DiesAfter) {
            (self.die)();
        }
        if fault == Some(Fault::Denied) {
            bail!("change {} is denied", self.changes);
        }
        Ok(made)
    }
}

macro_rules! faulty {
    (reads { $(fn $read:ident($($read_name:ident: $read_type:ty),*) -> $read_result:ty;)* }
     changes { $(fn $change:ident($($name:ident: $type:ty),*);)* }) => {
        impl<M: Machine> Machine for Faulty<M> {
            $(fn $read(&mut self, $($read_name: $read_type),*) -> $read_result {
                self.machine.$read($($read_name),*)
            })*
            $(fn $change(&mut self, $($name: $type),*) -> Result<()> {
                self.change(|machine| machine.$change($($name),*))
            })*
        }
    };
}

faulty! {
    reads {
        fn host() -> Result<Host>;
        fn nics() -> Result<Vec<Nic>>;
        fn bound(nic: &str, component: &str) -> Result<Option<bool>>;
        fn ip_settings(adapter: &str) -> Result<IpSettings>;
        fn signer(catalog: &Path) -> Result<Certificate>;
        fn trusts(store: Store, thumbprint: &str) -> Result<bool>;
        fn staged(inf: Inf) -> Result<Vec<String>>;
        fn has_protocol() -> Result<bool>;
        fn devices() -> Result<Vec<String>>;
        fn vnic() -> Result<Option<Vnic>>;
        fn keyword(name: &str) -> Result<Option<String>>;
        fn snapshot() -> Result<Option<Vec<u8>>>;
        fn stages() -> Result<Stages>;
        fn journal() -> Result<Option<String>>;
        fn flight() -> Result<Option<String>>;
        fn ask(program: &str, arguments: &[&str]) -> Result<Said>;
        fn problem(device: &str) -> Result<u32>;
        fn verify_signature(file: &Path, catalog: &Path) -> Result<()>;
        fn pause_s(seconds: u64) -> ();
    }
    changes {
        fn set_journal(text: Option<&str>);
        fn set_flight(text: Option<&str>);
        fn schedule_rollback(within_s: u64);
        fn cancel_rollback();
        fn keep_tool(kept: Kept);
        fn set_trust(store: Store, certificate: &Certificate, kept: Kept);
        fn stage(inf: &Path);
        fn unstage(published: &str);
        fn install_protocol();
        fn remove_protocol();
        fn create_device();
        fn remove_device(device: &str);
        fn install_driver(inf: &Path);
        fn register_counters(manifest: &Path);
        fn unregister_counters();
        fn set_keyword(name: &str, value: &str);
        fn rename(name: &str);
        fn restart();
        fn bind(nic: &str, component: &str, kept: Kept);
        fn add_ip_settings(adapter: &str, settings: &IpSettings);
    }
}

/// A change's number and what happens to it, such as `7 refused`.
#[cfg(all(windows, feature = "stand-in"))]
pub(crate) fn parse(text: &str) -> Result<(u32, Fault)> {
    let mut words = text.split_whitespace();
    let at = words.next().unwrap_or_default().parse()?;
    let kind = words.next().unwrap_or_default();
    let fault = match kind {
        "refused" => Fault::Refused,
        "denied" => Fault::Denied,
        "dies-before" => Fault::DiesBefore,
        "dies-after" => Fault::DiesAfter,
        _ => bail!("no fault: {text}"),
    };
    Ok((at, fault))
}
