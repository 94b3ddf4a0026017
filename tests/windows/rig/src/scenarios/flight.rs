//! The flight consumer beside the image: `ndkflight.sys`, told what to do and asked for its verdicts by the registry, over two adapters
//! of the image.

use std::time::Duration;

use super::net::Net;
use super::*;
use crate::ndis::within;

/// The flight has ended by then.
const LIMIT: Duration = Duration::from_secs(300);
const SERVICE: &str = "ndkflight";

/// `flight FILE WANTED [HOW...]`: the flight ends in the state WANTED, with each `_` for a space. HOW is any of `loss=EVERY` (the wire loses
/// one frame of so many), `Name=VALUE` (a value of the registry, where `Client=` and `Server=` have the numbers 0 and 1 for the adapters), and
/// `stop` (it is unloaded at once).
pub(super) fn flight(host: &dyn Host, arguments: &[String]) {
    let [file, wanted, how @ ..] = arguments else { panic!("flight FILE WANTED [HOW...]") };
    let net = Net::plug(host, 1500);
    let mut stops = false;
    for word in how {
        match word.split_once('=') {
            Some(("loss", every)) => switch::lose(every.parse().expect("loss=EVERY")),
            Some((name @ ("Client" | "Server"), number)) => {
                let index = number.parse().ok().and_then(|at: usize| net.vnics.get(at));
                set(name, &index.map_or(number.to_owned(), |vnic| vnic.index.to_string()));
            }
            Some((name, value)) => set(name, value),
            None => stops |= word == "stop",
        }
    }
    let unload = host.load_beside(SERVICE, file).expect("the flight begins");
    let has_ended = || !matches!(get("State").as_deref(), None | Some("running"));
    if !stops && !within(LIMIT, has_ended) {
        crate::log::verdict(format_args!("the flight does not end"), false);
    }
    let state = if stops { String::new() } else { state() };
    if state == "stuck" {
        // Its code stays where it is.
        crate::log::verdict(format_args!("the flight is stuck"), false);
    }
    unload();
    let state = if stops { self::state() } else { state };
    switch::lose(0);
    if state != wanted.replace('_', " ") {
        breach!("the flight has {state}, not {wanted}");
    }
    net.end(host);
}

/// Tells the verdicts, and returns how the flight ended.
fn state() -> String {
    let steps = get("Steps").and_then(|steps| steps.parse().ok()).unwrap_or(0);
    for step in 0..steps {
        say!("step: {}", get(&format!("Step{step:03}")).unwrap_or_default());
    }
    get("State").unwrap_or_default()
}

fn set(name: &str, value: &str) {
    registry::set(&format!("{SERVICE}\\{name}"), value);
}

fn get(name: &str) -> Option<String> {
    registry::get(&format!("{SERVICE}\\{name}"))
}
