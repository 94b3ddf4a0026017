//! The stages of a flight, each by itself on a machine that may be thrown away, such as a hosted runner: a bug check is then a
//! machine that never answers, and its stage is known by that.
//!
//! A stage makes NICs of its own, installs what it looks at, and takes all of it away again; that the machine is as before is
//! a check of each stage. No NIC that the machine came with is touched.

mod consumer;
mod course;
mod evidence;
mod exports;
mod lines;
mod nics;
mod page;
mod remains;
mod scene;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::machine::Machine;
use crate::verify::Outcome;
use lines::{End, Lines};
use scene::Scene;

/// What is looked at, in the order in which a stage stands on those before.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// Each function that the image imports is one of this Windows
    Imports,
    /// The driver loads and unloads
    Load,
    /// The adapter appears, without a NIC and without a link
    Device,
    /// It binds to a NIC, and its link comes
    Bind,
    /// RDMA from an adapter to itself
    Loopback,
    /// RDMA between two adapters, each way
    TwoAdapters,
    /// The adapter, then its NIC, are disabled and enabled again and again
    Storm,
    /// The NIC vanishes below the adapter
    SurpriseRemoval,
    /// All that `verify` checks, and the NIC left alone, in Own mode
    Own,
    /// The same in Inherit mode, and the NIC's settings come back
    Inherit,
    /// The same in Share mode, and the NIC left alone
    Share,
    /// Microsoft's rping between two adapters
    Rping,
    /// Our own consumer, ndkflight.sys, over all of NDK
    Consumer,
    /// A copy over SMB Direct to this machine itself, by the counters
    Smb,
    /// Another build comes below the adapter, which keeps its settings
    Upgrade,
    /// Installed and uninstalled twice
    Uninstall,
}

impl Stage {
    /// By the name of the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map(|value| value.get_name().to_string()).unwrap_or_default()
    }

    /// Whether NICs are made for it.
    fn has_nics(self) -> bool {
        self != Self::Imports
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Flight {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Go through one stage on this machine, which may not survive it; exit code 77: skipped
    Stage(Asked),
    /// Make one page of what all stages wrote; exit code 0: all passed, and RDMA ran on each machine
    Report(page::Asked),
    /// List what this Windows exports to drivers, of the modules that the image imports from
    Exports(exports::Asked),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    #[arg(value_enum)]
    stage: Stage,
    /// The folder with the INFs, catalogs and image [default: that of this program]
    #[arg(long)]
    package: Option<PathBuf>,
    /// The folder of another build, for the stage `upgrade`
    #[arg(long)]
    newer: Option<PathBuf>,
    /// The folder of Windows' own files, for the stage `imports` [default: System32]
    #[arg(long)]
    system: Option<PathBuf>,
    /// The folder of duonic.ps1 of microsoft/corenet-ci, whose NICs are taken where Hyper-V makes none
    #[arg(long)]
    duonic: Option<PathBuf>,
    /// Two NICs of this machine for the stage to use, instead of NICs that it makes: they are not given back as they were
    #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"])]
    nics: Vec<String>,
    /// A folder for the copy of the stage `smb` [default: a share that it makes]
    #[arg(long)]
    share: Option<PathBuf>,
    /// The kind of machine, for the page
    #[arg(long, default_value = "this-machine")]
    runner: String,
    /// The kind of image: by which declarations it was built, for the page
    #[arg(long, default_value = "declared")]
    image: String,
    /// The folder that gets a line for each check, the logs and the dumps
    #[arg(long, default_value = "flight")]
    out: PathBuf,
    /// Print the lines as JSON: ndkrocev2ctl.schema.json describes them
    #[arg(long)]
    json: bool,
}

impl Asked {
    fn package(&self) -> Result<PathBuf> {
        crate::package_folder(self.package.as_ref())
    }
}

/// What needs a machine.
pub(crate) fn fly<M: Machine>(
    machine: &mut M,
    asked: &Command,
    say: &mut dyn FnMut(String),
) -> Result<Exit> {
    match asked {
        Command::Stage(asked) => stage(machine, asked, say),
        Command::Exports(asked) => exports::list(asked, say),
        Command::Report(asked) => report(asked, say),
    }
}

/// It needs no Windows.
pub(crate) fn report(asked: &page::Asked, say: &mut dyn FnMut(String)) -> Result<Exit> {
    page::write(asked, say)
}

fn stage<M: Machine>(machine: &mut M, asked: &Asked, say: &mut dyn FnMut(String)) -> Result<Exit> {
    std::fs::create_dir_all(&asked.out).with_context(|| asked.out.display().to_string())?;
    let mut lines = Lines::create(asked, say)?;
    lines.begin(&machine.host()?)?;
    let mut scene = Scene::new(machine, asked, lines);
    let flown = scene.prepare().and_then(|()| course::fly(&mut scene));
    let left = scene.leave();
    evidence::gather(scene.machine, &asked.out);
    // What was left behind outweighs a reason to skip.
    let end = match (flown, left) {
        (Err(End::Failed(why)), _) | (_, Err(End::Failed(why))) => Err(End::Failed(why)),
        (flown, left) => flown.and(left),
    };
    Ok(match scene.lines.end(end)? {
        Outcome::Passed => Exit::Done,
        Outcome::Skipped => Exit::Skipped,
        Outcome::Failed => Exit::Failed,
    })
}
