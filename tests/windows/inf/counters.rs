//! The manifest of the performance counters, by
//! [its schema](https://learn.microsoft.com/windows/win32/perfctrs/performance-counters-schema): it says of
//! the driver's table what `lodctr` has to know.

use ndis_driver::IMAGE;
use ndis_driver::counter_sets::{SETS, string_id};
use std::fmt::Write as _;

pub(super) const FILE: &str = "inf/ndkrocev2.man";
const PROVIDER: &str = "{5b0f4f5e-53c5-4a0e-9d5a-7d0f1c1b6a00}";

/// What the file has to be.
pub(super) fn manifest() -> String {
    let mut text = String::new();
    let mut line = |indent: usize, words: &[&str]| {
        let _ = writeln!(text, "{:1$}{2}", "", 2 * indent, words.concat());
    };
    line(0, &["<?xml version=\"1.0\" encoding=\"us-ascii\"?>"]);
    line(0, &["<!-- Made from the driver's table of counters, which a test holds it to. -->"]);
    line(
        0,
        &["<instrumentationManifest xmlns=\"http://schemas.microsoft.com/win/2004/08/events\">"],
    );
    line(1, &["<instrumentation>"]);
    let schema = "http://schemas.microsoft.com/win/2005/12/counters";
    line(2, &["<counters xmlns=\"", schema, "\" schemaVersion=\"1.1\">"]);
    line(3, &["<provider applicationIdentity=\"", IMAGE, "\" providerType=\"kernelMode\""]);
    line(4, &["providerGuid=\"", PROVIDER, "\" providerName=\"ndkrocev2\">"]);
    for (number, set) in SETS.iter().enumerate() {
        let uri = format!("ndkrocev2.{}", set.name.replace(' ', ""));
        let symbol = set.name.to_uppercase().replace(' ', "_");
        let id = |place: usize| (string_id(number) + place).to_string();
        line(4, &["<counterSet guid=\"", set.guid, "\" uri=\"", &uri, "\""]);
        line(5, &["symbol=\"", &symbol, "\" instances=\"multiple\""]);
        line(5, &["name=\"", set.name, "\" nameID=\"", &id(0), "\""]);
        line(5, &["description=\"", set.about, "\" descriptionID=\"", &id(1), "\">"]);
        line(5, &["<structs>"]);
        line(6, &["<struct name=\"Values\" type=\"", &symbol, "_VALUES\"/>"]);
        line(5, &["</structs>"]);
        for place in 0..set.members().count() {
            let name = set.members().get(place).name;
            line(5, &["<counter id=\"", &place.to_string(), "\" uri=\"", &uri, ".", name, "\""]);
            line(
                6,
                &["field=\"", name, "\" name=\"", name, "\" nameID=\"", &id(2 + 2 * place), "\""],
            );
            line(6, &["description=\"", name, "\" descriptionID=\"", &id(3 + 2 * place), "\""]);
            line(6, &["type=\"perf_counter_large_rawcount\" detailLevel=\"standard\"/>"]);
        }
        line(4, &["</counterSet>"]);
    }
    for (indent, end) in [(3, "provider"), (2, "counters"), (1, "instrumentation")] {
        line(indent, &["</", end, ">"]);
    }
    line(0, &["</instrumentationManifest>"]);
    text
}
