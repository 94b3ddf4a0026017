//! The picture: goodput of each sender and the queue over time, one row for each kind of control, and
//! the table as bars.

use super::outcome::Outcome;
use super::sim::Scenario;
use super::sweep::{CONTROLS, Seeds, load_name};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 60.0;
/// Of one row: its picture, and that with its title and axis.
const HEIGHT: f64 = 150.0;
const PITCH: f64 = HEIGHT + 70.0;
const TOP: f64 = 70.0;
/// The parts of a row.
const RATE_WIDTH: f64 = 480.0;
const QUEUE_LEFT: f64 = LEFT + RATE_WIDTH + 70.0;
const QUEUE_WIDTH: f64 = WIDTH - QUEUE_LEFT - 20.0;
/// Milliseconds that one point of a line is the mean of.
const MEAN_MS: usize = 4;
/// Of the vertical axes, in Gb/s and in KiB.
const RATE_TOP: f64 = 4.0;
const QUEUE_TOP: f64 = 150.0;
const COLORS: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#000000"];
/// Of off, marks and losses.
const BAR_COLORS: [&str; 3] = ["#bb5566", "#004488", "#ddaa33"];
const NAMES: [&str; 3] = ["no control", "control, the switch marks (ECN)", "control, losses only"];

/// One picture of all.
pub(crate) fn svg(panels: &[(&str, Outcome)], table: &[(Scenario, Seeds)]) -> String {
    let height = TOP + PITCH * (panels.len() + 1) as f64 + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"DejaVu Sans, Helvetica, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = "Incast, 8 to 1, over one port of 10 Gb/s with a buffer of 128 KiB (simulated)";
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"26\" text-anchor=\"middle\" font-size=\"16\">{title}</text>",
        WIDTH / 2.0
    );
    for (row, ((_, outcome), name)) in panels.iter().zip(NAMES).enumerate() {
        let top = TOP + PITCH * row as f64;
        rates(&mut out, top, name, outcome);
        queue(&mut out, top, outcome, BAR_COLORS[row]);
    }
    bars(&mut out, TOP + PITCH * panels.len() as f64, table);
    out + "</svg>\n"
}

/// A rectangle with its scales, into which values are drawn.
struct Axes {
    left: f64,
    top: f64,
    width: f64,
    /// The values at the right and at the top.
    max: (f64, f64),
}

impl Axes {
    fn new(
        out: &mut String,
        origin: (f64, f64),
        width: f64,
        max: (f64, f64),
        steps: usize,
    ) -> Self {
        let axes = Self { left: origin.0, top: origin.1, width, max };
        for step in 0..=steps {
            let value = max.1 * step as f64 / steps as f64;
            let (_, y) = axes.at(0.0, value);
            line(out, "#dddddd", &[(axes.left, y), (axes.left + width, y)]);
            text(out, (axes.left - 8.0, y + 4.0), "end", &value.to_string());
        }
        axes
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (right, top) = self.max;
        (self.left + self.width * x / right, self.top + HEIGHT * (1.0 - (y / top).min(1.0)))
    }

    fn title(&self, out: &mut String, title: &str) {
        text(out, (self.left, self.top - 12.0), "start", title);
    }

    fn milliseconds(&self, out: &mut String) {
        for ms in (0..=self.max.0 as usize).step_by(50) {
            let (x, _) = self.at(ms as f64, 0.0);
            let unit = if ms == 0 { "0 ms" } else { &ms.to_string() };
            text(out, (x, self.top + HEIGHT + 16.0), "middle", unit);
        }
    }
}

fn rates(out: &mut String, top: f64, name: &str, outcome: &Outcome) {
    let max = (outcome.each_ms.len() as f64, RATE_TOP);
    let axes = Axes::new(out, (LEFT, top), RATE_WIDTH, max, 4);
    axes.milliseconds(out);
    let goodput = 100.0 * outcome.goodput();
    let jain = outcome.jain();
    axes.title(
        out,
        &format!("{name}: Gb/s of each sender. Together {goodput:.1} %, Jain {jain:.3}"),
    );
    for (sender, color) in COLORS.iter().enumerate() {
        let points = outcome.each_ms.chunks(MEAN_MS).enumerate().map(|(i, chunk)| {
            let bytes: u64 = chunk.iter().map(|bytes| bytes[sender]).sum();
            let gbit = bytes as f64 * 8.0 / (chunk.len() as f64 * 1e6);
            axes.at((i * MEAN_MS + MEAN_MS / 2) as f64, gbit)
        });
        line(out, color, &points.collect::<Vec<_>>());
    }
}

fn queue(out: &mut String, top: f64, outcome: &Outcome, color: &str) {
    let max = (outcome.queue.len() as f64, QUEUE_TOP);
    let axes = Axes::new(out, (QUEUE_LEFT, top), QUEUE_WIDTH, max, 3);
    axes.milliseconds(out);
    let (dropped, in_vain) = (100.0 * outcome.share(outcome.dropped), 100.0 * outcome.in_vain());
    axes.title(
        out,
        &format!("Longest queue, KiB; {dropped:.1} % dropped, {in_vain:.1} % carried in vain"),
    );
    let points = outcome.queue.iter().enumerate();
    let points = points.map(|(ms, bytes)| axes.at(ms as f64 + 0.5, *bytes as f64 / 1024.0));
    line(out, color, &points.collect::<Vec<_>>());
}

fn bars(out: &mut String, top: f64, table: &[(Scenario, Seeds)]) {
    let groups = table.len() / CONTROLS.len();
    let axes = Axes::new(out, (LEFT, top), WIDTH - LEFT - 20.0, (groups as f64, 120.0), 6);
    let title = "Goodput, % of the link: median of ten seeds, and the worst and the best of them";
    axes.title(out, title);
    for (i, (name, color)) in NAMES.iter().zip(BAR_COLORS).enumerate() {
        let (x, y) = (LEFT + [120.0, 310.0, 610.0][i], top + HEIGHT + 54.0);
        rectangle(out, (x, y - 10.0), (12.0, 12.0), color);
        text(out, (x + 18.0, y), "start", name);
    }
    for (i, (case, seeds)) in table.iter().enumerate() {
        let (group, control) = (i / CONTROLS.len(), i % CONTROLS.len());
        let from = group as f64 + 0.15 + 0.24 * control as f64;
        let goodput = 100.0 * seeds.median(|run| run.goodput);
        let ((x, y), (right, bottom)) = (axes.at(from, goodput), axes.at(from + 0.22, 0.0));
        rectangle(out, (x, y), (right - x, bottom - y), BAR_COLORS[control]);
        let ends = [seeds.least(|run| run.goodput), seeds.most(|run| run.goodput)];
        let ends = ends.map(|end| axes.at(from + 0.11, 100.0 * end));
        line(out, "black", &ends);
        let y = ends[1].1;
        text(out, ((x + right) / 2.0, y - 4.0), "middle", &format!("{goodput:.0}"));
        if control == 0 {
            let peer = if case.holds { "receiver keeps" } else { "receiver drops" };
            let name = format!("{} of {} KiB", load_name(case.load), case.message >> 10);
            let (x, y) = axes.at(group as f64 + 0.5, 0.0);
            text(out, (x, y + 16.0), "middle", &name);
            text(out, (x, y + 30.0), "middle", peer);
        }
    }
}

fn line(out: &mut String, color: &str, points: &[(f64, f64)]) {
    let points: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
    let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{color}\" points=\"{points}\"/>");
}

fn rectangle(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{color}\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
