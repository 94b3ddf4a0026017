//! The bill of materials: the crates whose code is in the programs of the release, as
//! [CycloneDX 1.5](https://cyclonedx.org/docs/1.5/json/).

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::origin::{Origin, run};

/// A package of this workspace that becomes a file of the release, and for which target it is built.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// cargo's name of it.
    pub package: &'static str,
    /// rustc's name of the target.
    pub target: &'static str,
}

/// A crate, by name and version.
type Crate = (String, String);

/// The bill of the programs. Crates that only build them, such as derive macros, are not among it.
pub fn bill(root: &Path, programs: &[Program], origin: &Origin) -> Result<Value> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    let metadata = run(cargo.arg(root.join("Cargo.toml")))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo's metadata")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let mut edges = BTreeMap::new();
    for program in programs {
        edges.append(&mut tree(root, *program)?);
    }
    let described: Vec<_> =
        edges.keys().map(|of| component(of, &metadata, &lock)).collect::<Result<_>>()?;
    Ok(document(described, &edges, programs, origin))
}

/// The dependencies of each crate of a program. `cargo tree` alone knows the features that this one package asks for;
/// the metadata are about the workspace as one.
fn tree(root: &Path, program: Program) -> Result<BTreeMap<Crate, Vec<Crate>>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--prefix", "depth", "--no-dedupe", "--format", " {p}"]);
    cargo.args(["--edges", "normal,no-proc-macro", "--package", program.package]);
    cargo.args(["--target", program.target, "--manifest-path"]);
    Ok(edges(&run(cargo.arg(root.join("Cargo.toml")))?))
}

/// Of lines such as `1 rtrb v0.4.0`: a depth, and a crate that the last one of the depth above depends on.
fn edges(tree: &str) -> BTreeMap<Crate, Vec<Crate>> {
    let mut edges: BTreeMap<Crate, Vec<Crate>> = BTreeMap::new();
    let mut above: Vec<Crate> = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let (Some(depth), Some(name), Some(version)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(depth) = depth.parse() else { continue };
        let this = (name.to_owned(), version.trim_start_matches('v').to_owned());
        edges.entry(this.clone()).or_default();
        above.truncate(depth);
        if let Some(parent) = above.last() {
            let of = edges.entry(parent.clone()).or_default();
            if !of.contains(&this) {
                of.push(this.clone());
            }
        }
        above.push(this);
    }
    edges
}

fn component(of: &Crate, metadata: &Value, lock: &str) -> Result<Value> {
    let (name, version) = of;
    let packages = metadata["packages"].as_array().context("cargo's packages")?;
    let found = packages
        .iter()
        .find(|package| package["name"] == name.as_str() && package["version"] == version.as_str());
    let package = found.with_context(|| format!("cargo does not know {name} {version}"))?;
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(of),
        "name": name,
        "version": version,
    });
    if let Some(licence) = package["license"].as_str() {
        // An older way to write it.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    // A crate of this workspace is not the one of its name that crates.io may have.
    if package["source"].is_string() {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
    }
    if let Some(checksum) = checksum(of, lock) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    Ok(component)
}

/// Of the crate's archive, as Cargo.lock has it.
fn checksum<'a>((name, version): &Crate, lock: &'a str) -> Option<&'a str> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let entry = lock.split("[[package]]\n").find(|entry| entry.starts_with(&head))?;
    let line = entry.lines().find_map(|line| line.strip_prefix("checksum = "))?;
    Some(line.trim_matches('"'))
}

fn reference((name, version): &Crate) -> String {
    format!("{name}@{version}")
}

fn document(
    mut components: Vec<Value>,
    edges: &BTreeMap<Crate, Vec<Crate>>,
    programs: &[Program],
    origin: &Origin,
) -> Value {
    let standard = "rust-std";
    // Precompiled, so no package of the lock file: core and alloc, and std in a program.
    components.push(json!({
        "type": "library",
        "bom-ref": standard,
        "name": standard,
        "version": origin.rustc,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    let depends = edges.iter().map(|(of, on)| {
        let on: Vec<_> = on.iter().map(reference).chain([standard.to_owned()]).collect();
        json!({ "ref": reference(of), "dependsOn": on })
    });
    let targets: Vec<_> = programs.iter().map(|program| program.target).collect();
    let mut properties = vec![json!({ "name": "targets", "value": targets.join(" ") })];
    if let Some(commit) = &origin.commit {
        properties.push(json!({ "name": "commit", "value": commit }));
    }
    let roots: Vec<_> =
        programs.iter().map(|program| format!("{}@{}", program.package, origin.version)).collect();
    let release = json!({ "ref": "release", "dependsOn": roots });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(origin.at_s),
            "component": {
                "type": "device-driver",
                "bom-ref": "release",
                "name": "ndkrocev2",
                "version": origin.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
            "properties": properties,
        },
        "components": components,
        "dependencies": depends.chain([release]).collect::<Vec<_>>(),
    })
}

fn timestamp(at_s: u64) -> Option<String> {
    let at = der::DateTime::from_unix_duration(std::time::Duration::from_secs(at_s)).ok()?;
    Some(at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, version: &str) -> Crate {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_tree_becomes_edges() {
        let tree = "0 image v0.1.0 (/x/image)\n1 driver v0.1.0 (/x)\n2 rtrb v0.4.0\n2 serde v1.0.0\n1 rtrb v0.4.0";
        let edges = edges(tree);
        assert_eq!(edges[&of("image", "0.1.0")], [of("driver", "0.1.0"), of("rtrb", "0.4.0")]);
        assert_eq!(edges[&of("driver", "0.1.0")], [of("rtrb", "0.4.0"), of("serde", "1.0.0")]);
        assert_eq!(edges.len(), 4);
    }

    #[test]
    fn a_checksum_is_that_of_the_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1\"\nchecksum = \"11\"\n\n\
             [[package]]\nname = \"a\"\nversion = \"2\"\nchecksum = \"22\"\n\n[[package]]\nname = \"b\"\nversion = \"1\"\n";
        assert_eq!(checksum(&of("a", "2"), lock), Some("22"));
        assert_eq!(checksum(&of("b", "1"), lock), None);
    }
}
