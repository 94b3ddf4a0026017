//! One document, as far as its figures are read.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::perf;
use crate::report::{SCHEMA, SCHEMA_VERSION};

/// All runs of one command.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) edge: Value,
    pub(super) depth: u32,
    #[serde(flatten)]
    pub(super) load: Load,
    pub(super) verified: bool,
    #[serde(rename = "operations")]
    pub(super) runs: Vec<Figures>,
}

/// What was measured, and over how many queue pairs. A document of before there was a choice has the defaults.
#[derive(Debug, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub(super) struct Load {
    pub(super) measure: String,
    pub(super) qps: u32,
    pub(super) srq: bool,
    pub(super) threads: u32,
    pub(super) bidirectional: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { measure: "bw".into(), qps: 1, srq: false, threads: 1, bidirectional: false }
    }
}

/// The figures of one operation with messages of one size.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figures {
    pub(super) operation: String,
    pub(super) size: u32,
    pub(super) messages: u64,
    pub(super) messages_per_second: f64,
    pub(super) gigabits_per_second: f64,
    pub(super) latency_us: Latency,
    pub(super) cpu_ns_per_message: Option<f64>,
    pub(super) wrong_messages: u64,
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Figures {
    /// For the user, as runs themselves name it.
    pub(super) fn name(&self) -> String {
        perf::name(&self.operation, self.size)
    }

    /// The reason, where it did not end well.
    pub(super) fn trouble(&self) -> Option<String> {
        match (&self.error, self.wrong_messages) {
            (Some(error), _) => Some(error.clone()),
            (None, 0) => None,
            (None, wrong) => Some(format!("{wrong} messages arrived wrong")),
        }
    }
}

impl Document {
    /// # Errors
    /// [`Failure::Document`] where the file cannot be read, or is no document that this program knows.
    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::Document(format!("{}: {error}", file.display())))?;
        Self::parse(&text).map_err(|wrong| Failure::Document(format!("{} {wrong}", file.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value = serde_json::from_str(text).unwrap_or(Value::Null);
        if value["schema"] != SCHEMA {
            return Err("is no document that `ndkperf --json` has printed".into());
        }
        let version = &value["schema_version"];
        if *version != SCHEMA_VERSION {
            return Err(format!(
                "has version {version} of the schema, and this ndkperf knows version {SCHEMA_VERSION} alone"
            ));
        }
        serde_json::from_value(value).map_err(|error| format!("is damaged: {error}"))
    }
}

#[cfg(test)]
impl Figures {
    /// Those of a run that went well.
    pub(super) fn example(operation: &str, size: u32) -> Self {
        Self {
            operation: operation.into(),
            size,
            messages: 100,
            messages_per_second: 1.0,
            gigabits_per_second: 1.0,
            latency_us: Latency { p50: 1.0, p99: 9.0 },
            cpu_ns_per_message: Some(500.0),
            wrong_messages: 0,
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({
            "schema": "ndkperf-run", "schema_version": 1, "edge": { "kind": "memory" }, "depth": 16,
            "verified": true,
            "operations": [{
                "operation": "write", "size": 64, "messages": 3, "messages_per_second": 2.0,
                "gigabits_per_second": 1.0,
                "latency_us": { "p50": 1.0, "p99": 2.0 }, "cpu_ns_per_message": null,
                "wrong_messages": 0, "error": null,
            }],
        })
    }

    #[test]
    fn only_a_document_of_this_version_is_read() {
        let told = |document: Value| Document::parse(&document.to_string()).unwrap_err();
        let read = Document::parse(&document().to_string()).unwrap();
        assert_eq!((read.depth, read.runs[0].name()), (16, "write of 64 B".to_string()));
        assert_eq!(read.load, Load::default());
        let mut latency = document();
        latency["measure"] = "lat".into();
        assert_eq!(Document::parse(&latency.to_string()).unwrap().load.measure, "lat");
        assert!(Document::parse("[1, 2").unwrap_err().contains("no document"));
        assert!(
            told(json!({ "schema": "ndkperf-decode", "schema_version": 1 }))
                .contains("no document")
        );
        let mut other = document();
        other["schema_version"] = 2.into();
        assert!(told(other).contains("has version 2 of the schema"));
        let mut cut = document();
        cut["operations"][0]["latency_us"] = json!({ "p50": 1.0 });
        assert!(told(cut).contains("p99"));
    }

    #[test]
    fn a_run_without_an_error_may_have_gone_wrong() {
        let trouble = |wrong: u64, error: Value| {
            let mut document = document();
            document["operations"][0]["wrong_messages"] = wrong.into();
            document["operations"][0]["error"] = error;
            Document::parse(&document.to_string()).unwrap().runs[0].trouble()
        };
        assert_eq!(trouble(0, Value::Null), None);
        assert_eq!(trouble(2, Value::Null).unwrap(), "2 messages arrived wrong");
        assert_eq!(trouble(2, "it ended".into()).unwrap(), "it ended");
    }
}
