//! A machine on which one change fails, or during which the program dies.

use std::path::Path;

use anyhow::{Result, bail};

use crate::machine::{Certificate, Host, Inf, IpSettings, Machine, Nic, Said, Stages, Store, Vnic};

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
    /// It is not made, and says that it was. No machine does that; a step that forgets it does.
    Ignored,
}

#[cfg(test)]
impl Fault {
    pub(crate) const ALL: [Self; 4] =
        [Self::Refused, Self::Denied, Self::DiesBefore, Self::DiesAfter];
}

/// The changes that go wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum At {
    /// The one of this number, from 1.
    Nth(usize),
    /// All of this operation.
    Named(String),
}

/// `machine`, but for some changes.
pub(crate) struct Faulty<M> {
    pub(crate) machine: M,
    /// The operations that it was asked for.
    pub(crate) changes: Vec<&'static str>,
    at: Option<(At, Fault)>,
    die: fn() -> !,
}

impl<M: Machine> Faulty<M> {
    pub(crate) fn new(machine: M, at: Option<(At, Fault)>, die: fn() -> !) -> Self {
        Self { machine, changes: Vec::new(), at, die }
    }

    fn fault(&self, name: &str) -> Option<Fault> {
        let (at, fault) = self.at.as_ref()?;
        let is_it = match at {
            At::Nth(number) => *number == self.changes.len(),
            At::Named(named) => named == name,
        };
        is_it.then_some(*fault)
    }

    fn change(
        &mut self,
        name: &'static str,
        make: impl FnOnce(&mut M) -> Result<()>,
    ) -> Result<()> {
        self.changes.push(name);
        let number = self.changes.len();
        match self.fault(name) {
            None => make(&mut self.machine),
            Some(Fault::Refused) => bail!("change {number} ({name}) is refused"),
            Some(Fault::Denied) => {
                make(&mut self.machine)?;
                bail!("change {number} ({name}) is denied")
            }
            Some(Fault::DiesBefore) => (self.die)(),
            Some(Fault::DiesAfter) => {
                make(&mut self.machine)?;
                (self.die)()
            }
            Some(Fault::Ignored) => Ok(()),
        }
    }
}

macro_rules! faulty {
    (reads { $($_by:ident fn $read:ident($($read_name:ident: $read_type:ty),*) -> $result:ty;)* }
     changes { $($_of:ident fn $change:ident($($name:ident: $type:ty),*);)* }) => {
        impl<M: Machine> Machine for Faulty<M> {
            $(fn $read(&mut self, $($read_name: $read_type),*) -> $result {
                self.machine.$read($($read_name),*)
            })*
            $(fn $change(&mut self, $($name: $type),*) -> Result<()> {
                self.change(stringify!($change), |machine| machine.$change($($name),*))
            })*
        }
    };
}

crate::operations::operations!(faulty);

/// A change's number or operation and what happens to it, such as `7 refused` or `unstage ignored`.
#[cfg_attr(not(windows), allow(dead_code, reason = "the trial under Wine asks for faults"))]
pub(crate) fn parse(text: &str) -> Result<(At, Fault)> {
    let Some((at, kind)) = text.split_once(' ') else { bail!("no fault: {text}") };
    let at = at.parse().map_or_else(|_| At::Named(at.into()), At::Nth);
    let fault = match kind {
        "refused" => Fault::Refused,
        "denied" => Fault::Denied,
        "dies-before" => Fault::DiesBefore,
        "dies-after" => Fault::DiesAfter,
        "ignored" => Fault::Ignored,
        _ => bail!("no fault: {text}"),
    };
    Ok((at, fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read() {
        assert_eq!(parse("7 dies-after").expect("a fault"), (At::Nth(7), Fault::DiesAfter));
        let unstage = At::Named("unstage".into());
        assert_eq!(parse("unstage ignored").expect("a fault"), (unstage, Fault::Ignored));
        assert!(parse("7").is_err() && parse("7 lost").is_err());
    }
}
