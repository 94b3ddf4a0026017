//! The status in words: names and values, one pair a line.

use std::fmt::Write;

use super::{
    Adapter, Driver, Installation, Interface, Link, Ndk, Part, Progressed, Status, Told, meaning,
};

pub(super) fn text(status: &Status) -> String {
    let mut lines = Lines(String::new());
    if status.adapters.is_empty() {
        lines.add("installation", "none");
    }
    if let Some(asked_by) = &status.restart_asked_by {
        lines.add("restart", format!("Windows waits for one: {asked_by}"));
    }
    if status.upgrade_unconfirmed {
        lines.add("upgrade", "goes back unless confirmed");
    }
    for adapter in &status.adapters {
        add_adapter(&mut lines, adapter);
    }
    if let Some(driver) = &status.driver {
        add_driver(&mut lines, driver);
    }
    lines.0
}

struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        let _ = write!(self.0, "{name:<14}{}", value.as_ref().replace('\n', "\n              "));
    }
}

fn known<T>(part: &Part<T>, words: impl FnOnce(&T) -> String) -> String {
    match part {
        Part::Known(value) => words(value),
        Part::Unknown(why) => format!("unknown: {why}"),
    }
}

fn add_adapter(lines: &mut Lines, adapter: &Adapter) {
    let Adapter { installation, device, problem, interface } = adapter;
    lines.add("installation", installation.as_ref().map_or("none".into(), describe));
    let Some(problem) = problem else { return lines.add("device", "none") };
    let state = known(problem, |code| match code {
        0 => "runs".into(),
        code => format!("problem code {code}: {}", meaning(*code)),
    });
    lines.add("device", format!("{device}, {state}"));
    match interface {
        Some(interface) => add_interface(lines, interface),
        None => lines.add("adapter", "does not appear"),
    }
}

fn describe(installation: &Installation) -> String {
    let Installation { name, nic, mode, progress, steps_done, steps } = installation;
    let state = match progress {
        Progressed::Confirmed => "confirmed".into(),
        Progressed::RollsBackUnlessConfirmed => "rolls back unless confirmed".into(),
        Progressed::BrokenOff => format!("broken off after {steps_done} of {steps} steps"),
        Progressed::GoesOnAfterRestart => {
            format!("goes on after a restart, {steps_done} of {steps} steps are done")
        }
    };
    format!("'{name}' on '{nic}', {mode:?} mode, {state}")
}

fn add_interface(lines: &mut Lines, interface: &Interface) {
    let Interface { name, index, mac, link, path_mtu, mode, lower_adapter, nic, ndk } = interface;
    lines.add("adapter", format!("'{name}', index {index}, {mac}"));
    lines.add("link", link.text());
    match nic {
        Some(nic) => {
            lines.add("NIC", format!("'{}', {}, {mode:?} mode", nic.name, nic.link.text()));
            let (above, below) = (link.mtu, nic.link.mtu);
            lines.add("MTU", format!("{above} above {below}, room for a path MTU of {path_mtu}"));
        }
        None => lines.add("NIC", format!("none (LowerAdapter is '{lower_adapter}')")),
    }
    let ndk = known(ndk, |ndk| {
        let words = match ndk {
            Ndk::Operational => "on, operational",
            Ndk::NotOperational => "on, not operational",
            Ndk::Off => "off",
        };
        words.into()
    });
    lines.add("NDK", ndk);
}

impl Link {
    fn text(&self) -> String {
        let Self { up, speed_bps, .. } = self;
        if *up { format!("up, {} Mb/s", speed_bps / 1_000_000) } else { "down".into() }
    }
}

/// What is of the driver and not of one adapter.
fn add_driver(lines: &mut Lines, driver: &Driver) {
    let Driver { counters, says, last_stage, last_event } = driver;
    let counters = known(counters, |moved| {
        let moved: Vec<_> = moved.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if moved.is_empty() { "all zero".into() } else { moved.join("\n") }
    });
    lines.add("counters", counters);
    match says {
        Part::Known(Some(Told { driver, adapters, connections, last_problem })) => {
            lines.add("driver", driver);
            lines.add("adapters", adapters);
            lines.add("connections", connections);
            lines.add("last problem", last_problem);
        }
        Part::Known(None) => lines.add("driver", "has no adapter, or is not loaded"),
        Part::Unknown(why) => lines.add("driver", format!("unknown: {why}")),
    }
    if *last_stage != Part::Known(String::new()) {
        lines.add("last stage", known(last_stage, String::clone));
    }
    let event = |event: &String| if event.is_empty() { "none".into() } else { event.clone() };
    lines.add("last event", known(last_event, event));
}
