//! The picture: one panel per scenario, one line per sender.

use super::sim::{MILLISECONDS, Outcome, SENDERS};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 60.0;
const PITCH: f64 = HEIGHT + 60.0;
/// Milliseconds that one point of a line is the mean of.
const MEAN_MS: usize = 4;
/// Of the vertical axis, in Gb/s.
const TOP: f64 = 5.0;
const COLORS: [&str; SENDERS] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#000000"];

/// The goodput of each sender over time.
pub(crate) fn svg(panels: &[(&str, &Outcome)]) -> String {
    let (width, height) = (LEFT + WIDTH + 20.0, PITCH * panels.len() as f64 + 20.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    for (i, (name, outcome)) in panels.iter().enumerate() {
        panel(&mut out, PITCH * i as f64 + 40.0, name, outcome);
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, top: f64, name: &str, outcome: &Outcome) {
    let percent = 100.0 * outcome.utilization();
    let title = format!("{name}: {percent:.1} % of the link, Jain {:.3}", outcome.jain());
    text(out, LEFT, top - 10.0, "start", &title);
    for gbit in 0..=TOP as usize {
        let y = height_at(top, gbit as f64);
        line(out, "#dddddd", &[(LEFT, y), (LEFT + WIDTH, y)]);
        text(out, LEFT - 8.0, y + 4.0, "end", &gbit.to_string());
    }
    text(out, 8.0, top - 10.0, "start", "Gb/s");
    for ms in (0..=MILLISECONDS).step_by(50) {
        let label = format!("{ms} ms");
        text(out, x_at(ms), top + HEIGHT + 14.0, "middle", &label);
    }
    for (sender, color) in COLORS.iter().enumerate() {
        let points = outcome.each_ms.chunks(MEAN_MS).enumerate().map(|(i, chunk)| {
            let bytes: u64 = chunk.iter().map(|bytes| bytes[sender]).sum();
            let gbit = bytes as f64 * 8.0 / (chunk.len() as f64 * 1e6);
            (x_at(i * MEAN_MS + MEAN_MS / 2), height_at(top, gbit.min(TOP)))
        });
        line(out, color, &points.collect::<Vec<_>>());
    }
}

fn x_at(ms: usize) -> f64 {
    LEFT + WIDTH * ms as f64 / MILLISECONDS as f64
}

fn height_at(top: f64, gbit: f64) -> f64 {
    top + HEIGHT * (1.0 - gbit / TOP)
}

fn line(out: &mut String, color: &str, points: &[(f64, f64)]) {
    let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
    let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{color}\" points=\"{points}\"/>");
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
}
