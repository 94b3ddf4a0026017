//! The programs of a flight that change the machine: those of Hyper-V's switch, of NICs, and the counters.

use super::{Mistake, Simulated, Wired};
use crate::machine::{IpSettings, Said};

const SWITCH: &str = "vEthernet (ndkrocev2-flight";
/// What `verify` copies there and back.
const COPY_LEN: u64 = 128 << 20;

impl Simulated {
    /// What a command says that is one of these, on a machine that has them.
    pub(crate) fn run(&mut self, program: &str, arguments: &[&str]) -> Option<Said> {
        if !self.flies {
            return None;
        }
        let command = format!("{program} {}", arguments.join(" "));
        let nics = &mut self.state.nics;
        if command.contains("New-VMSwitch") {
            for (number, end) in [(0x51, ")"), (0x52, "-2)")] {
                nics.push(Wired::new(number, &format!("{SWITCH}{end}"), IpSettings::default()));
            }
        } else if command.contains("Remove-VMSwitch") {
            nics.retain(|wired| !wired.nic.name.starts_with(SWITCH));
        } else if command.contains("Remove-VMNetworkAdapter") {
            nics.retain(|wired| wired.nic.name != format!("{SWITCH}-2)"));
        } else if let Some((verb, name)) = command.split_once("-NetAdapter -Name '") {
            let name = name.split('\'').next()?;
            let wired = nics.iter_mut().find(|wired| wired.nic.name == name)?;
            wired.nic.up = verb.ends_with("Enable");
        } else if command.contains("typeperf.exe \\RoCEv2 Adapter(*)") {
            return Some(self.counted());
        } else {
            return None;
        }
        Some(Said::default())
    }

    /// A copy is between any two readings.
    fn counted(&mut self) -> Said {
        if !self.mistakes.contains(&Mistake::CopiesOverTcp) {
            self.moved_bytes += COPY_LEN;
        }
        let bytes = self.moved_bytes;
        let text = format!(
            "\"(PDH-CSV 4.0)\",\"\\\\H\\RoCEv2 Adapter(9)\\sent_bytes\"\n\"now\",\"{bytes}\""
        );
        Said { code: 0, text }
    }
}
