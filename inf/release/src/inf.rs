//! An INX becomes an INF as `stampinf` makes it: with DriverVer and the architecture.

use anyhow::{Context as _, Result, ensure};
use der::DateTime;
use std::time::Duration;

/// Whose package: both INFs name one image.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// The name of the INX, the INF and the catalog, without the extension.
    pub name: &'static str,
    /// The hardware or component ID in its models section.
    pub id: &'static str,
}

/// The adapter and its lower edge.
pub const PACKAGES: [Package; 2] = [
    Package { name: "ndkrocev2", id: r"root\ndkrocev2" },
    Package { name: "ndkrocev2-lower", id: "ndkrocev2_lower" },
];

/// The INF of an INX. `arch` is Windows' name of it, `version` that of cargo, behind which the minute of the day stands. The lines end as Windows' do, whatever
/// git made of the INX.
pub fn stamp(package: Package, inx: &str, arch: &str, version: &str, at_s: u64) -> Result<String> {
    let date = DateTime::from_unix_duration(Duration::from_secs(at_s))
        .with_context(|| format!("{at_s} seconds after 1970 are no date"))?;
    // Windows takes the later one; so do two builds of a day differ.
    let minute = u32::from(date.hour()) * 60 + u32::from(date.minutes());
    let stamp = format!(
        "DriverVer   = {:02}/{:02}/{:04},{version}.{minute}",
        date.month(),
        date.day(),
        date.year()
    );
    ensure!(inx.contains(package.id), "{} does not name {}", package.name, package.id);
    let catalog = format!("= {}.cat", package.name);
    ensure!(inx.contains(&catalog), "{} does not name its catalog", package.name);
    let mut stamped = 0;
    let mut inf = String::new();
    for line in inx.lines() {
        if line.split_once('=').is_some_and(|(key, value)| {
            key.trim().eq_ignore_ascii_case("DriverVer") && value.trim().is_empty()
        }) {
            stamped += 1;
            inf.push_str(&stamp);
        } else {
            inf.push_str(&line.replace("$ARCH$", arch));
        }
        inf.push_str("\r\n");
    }
    ensure!(stamped == 1, "{} has DriverVer to be stamped {stamped} times", package.name);
    Ok(inf)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INX: &str = "CatalogFile = ndkrocev2.cat\nDriverVer   =\n[Models.NT$ARCH$.10.0]\nx = y, root\\ndkrocev2\n";

    #[test]
    fn date_version_and_architecture_are_written() {
        let inf = stamp(PACKAGES[0], INX, "amd64", "0.1.0", 1_764_092_671).expect("an INF");
        let wanted = "CatalogFile = ndkrocev2.cat\nDriverVer   = 11/25/2025,0.1.0.1064\n\
             [Models.NTamd64.10.0]\nx = y, root\\ndkrocev2\n";
        assert_eq!(inf, wanted.replace('\n', "\r\n"));
        assert_eq!(
            stamp(PACKAGES[0], &INX.replace('\n', "\r\n"), "amd64", "0.1.0", 1_764_092_671).ok(),
            Some(inf)
        );
    }

    #[test]
    fn an_inx_that_is_stamped_already_or_of_another_package_is_refused() {
        let refused = |package, inx: &str| stamp(package, inx, "amd64", "0.1.0", 0).is_err();
        assert!(refused(PACKAGES[1], INX));
        assert!(refused(
            PACKAGES[0],
            &INX.replace("DriverVer   =", "DriverVer = 01/01/2025,1.0.0.0")
        ));
    }
}
