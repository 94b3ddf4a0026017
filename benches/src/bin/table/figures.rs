//! What was measured, by name.

use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(crate) fn put(&mut self, name: String, value: f64) {
        self.0.insert(name, value);
    }

    /// Takes `name value` lines.
    pub(crate) fn read(&mut self, text: &str) {
        let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
        for (name, value) in pairs {
            if let Ok(value) = value.parse() {
                self.put(name.to_string(), value);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub(crate) fn each(&self, names: &[&str]) -> Vec<Option<f64>> {
        names.iter().map(|name| self.get(name)).collect()
    }

    pub(crate) fn over(&self, name: &str, other: &str) -> Option<f64> {
        Some(self.get(name)? / self.get(other)?)
    }
}
