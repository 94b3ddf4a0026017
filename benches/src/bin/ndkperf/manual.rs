//! Completions for shells and manual pages, made from the definition of the command line.

use std::io::{self, Write as _};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Shell that completes
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Manual {
    /// Words of the command that the page is of, as in `rping serve` (default: `ndkperf` itself)
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints a shell's script.
///
/// # Errors
/// [`Failure::Output`] where it cannot be printed.
pub(crate) fn completions(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ndkperf", &mut script);
    print(&script)
}

/// Prints a page for `man`.
///
/// # Errors
/// [`Failure::Arguments`] where there is no such command, [`Failure::Output`] where it cannot be printed.
pub(crate) fn manual(args: &Manual) -> Result<(), Failure> {
    let mut page = Vec::new();
    let man = Man::new(command(&args.command)?);
    let man = man.source(concat!("ndkperf ", env!("CARGO_PKG_VERSION")));
    man.render(&mut page).map_err(Failure::Output)?;
    print(&page)
}

fn command(words: &[String]) -> Result<Command, Failure> {
    let mut root = Cli::command();
    // Commands learn the names of those above them.
    root.build();
    let found = words.iter().try_fold(&root, |command, word| command.find_subcommand(word));
    let unknown = || Failure::Arguments(format!("there is no command `{}`", words.join(" ")));
    found.cloned().ok_or_else(unknown)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_of_the_command_that_the_words_name() {
        let name = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(String::from).collect();
            command(&words).map(|command| command.get_display_name().unwrap_or("none").to_string())
        };
        assert_eq!(name("rping serve").unwrap(), "ndkperf-rping-serve");
        assert_eq!(name("compare").unwrap(), "ndkperf-compare");
        assert!(name("").is_ok());
        assert!(name("rping erase").unwrap_err().to_string().contains("`rping erase`"));
    }
}
