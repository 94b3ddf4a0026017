//! The module of PowerShell: each command that it gives is one that the program takes. Nobody runs PowerShell here.

use clap::{CommandFactory, Parser, ValueEnum};

use crate::Cli;

const MODULE: &str = include_str!("../../../Ndkrocev2.psm1");

/// The texts in single quotes between two marks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('\'').skip(1).step_by(2).collect()
}

/// The commands and arguments of each function exist.
#[test]
fn the_module_speaks_to_the_program() {
    let program = Cli::command();
    let mut told = Vec::new();
    for function in MODULE.split("\nfunction ").skip(1) {
        let name = function.split_whitespace().next().expect("a name");
        let words = quoted(function);
        let command = words.iter().find_map(|word| program.find_subcommand(word));
        let Some(command) = command else { continue };
        let known: Vec<_> = command.get_arguments().filter_map(|one| one.get_long()).collect();
        for argument in words.iter().filter_map(|word| word.strip_prefix("--")) {
            assert!(
                known.contains(&argument),
                "{name}: {} has no --{argument}",
                command.get_name()
            );
        }
        told.push(name);
    }
    let exported =
        MODULE.lines().find_map(|line| line.strip_prefix("Export-ModuleMember -Function "));
    let exported: Vec<_> = exported.expect("names").split(", ").collect();
    assert_eq!(told, exported);
}

/// The modes that the function for an installation offers are the program's.
#[test]
fn the_modes_are_the_programs() {
    let offered = MODULE.lines().find_map(|line| line.split_once("ValidateSet(")).expect("a set");
    let offered = quoted(offered.1.split_once(')').expect("its end").0);
    let known = crate::machine::Mode::value_variants();
    let mut known: Vec<_> = known.iter().filter_map(clap::ValueEnum::to_possible_value).collect();
    known.sort_by_key(|mode| offered.iter().position(|one| *one == mode.get_name()));
    assert_eq!(
        known.iter().map(clap::builder::PossibleValue::get_name).collect::<Vec<_>>(),
        offered
    );
}

/// As the function for an installation gives it.
#[test]
fn an_installation_is_understood() {
    for more in [&[][..], &["--address", "192.0.2.7/24", "--address", "fd00::7/64"], &["--dry-run"]]
    {
        let words =
            ["ctl", "install", "--nic", "Ethernet", "--mode", "own", "--name", "RoCEv2", "--yes"];
        Cli::try_parse_from(words.into_iter().chain(more.iter().copied())).expect("is understood");
    }
}
