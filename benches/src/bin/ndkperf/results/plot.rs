//! `ndkperf plot`: bandwidth and median latency over the size of the messages, as a picture.

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::document::{Document, Figures};
use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct Plot {
    /// Documents of `--json`, best of sweeps (`--all`)
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The picture
    #[arg(short, long, value_name = "FILE.svg")]
    output: PathBuf,
}

/// Draws a line for each operation of each document.
///
/// # Errors
/// [`Failure::Document`] for files with nothing to draw, [`Failure::Output`] where the picture cannot be written.
pub(crate) fn run(args: &Plot) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for file in &args.files {
        lines.extend(lines_of(&stem(file), &Document::read(file)?));
    }
    if lines.is_empty() {
        return Err(Failure::Document("no run of these documents moved a message".into()));
    }
    let picture = picture(&lines)
        .map_err(|error| Failure::Document(format!("the picture cannot be drawn: {error}")))?;
    fs::write(&args.output, picture)
        .map_err(|error| Failure::Output(error).during(args.output.display().to_string()))
}

/// The runs of one operation in one document, by their sizes.
#[derive(Debug)]
struct Line {
    name: String,
    /// None of them has a figure of zero: logarithms have no place for it.
    runs: Vec<Figures>,
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

fn lines_of(stem: &str, document: &Document) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for run in document.runs.iter().filter(|run| run.messages > 0 && run.latency_us.p50 > 0.0) {
        let name = format!("{stem}: {}", run.operation);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.runs.push(run.clone()),
            None => lines.push(Line { name, runs: vec![run.clone()] }),
        }
    }
    lines.iter_mut().for_each(|line| line.runs.sort_by_key(|run| run.size));
    lines
}

type Drawn<T = ()> = Result<T, Box<dyn Error>>;

/// Both charts, one above the other.
fn picture(lines: &[Line]) -> Drawn<String> {
    let runs = || lines.iter().flat_map(|line| &line.runs);
    let charts = [
        Chart {
            title: "Bandwidth, Gb/s",
            figure: |run| run.gigabits_per_second,
            axis: Axis::linear(runs().map(|run| run.gigabits_per_second)),
        },
        Chart {
            title: "Median latency, µs",
            figure: |run| run.latency_us.p50.log10(),
            axis: Axis::of_decades(runs().map(|run| run.latency_us.p50)),
        },
    ];
    let sizes = Axis::of_sizes(runs().map(|run| run.size));
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, PIXELS).into_drawing_area();
    area.fill(&WHITE)?;
    for (chart, part) in charts.iter().zip(area.split_evenly((charts.len(), 1))) {
        chart.draw(&part, &sizes, lines)?;
    }
    area.present()?;
    drop(area);
    Ok(svg)
}

/// One figure over the sizes.
struct Chart {
    title: &'static str,
    /// As it stands on the axis.
    figure: fn(&Figures) -> f64,
    axis: Axis,
}

impl Chart {
    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        sizes: &Axis,
        lines: &[Line],
    ) -> Drawn {
        let mut builder = ChartBuilder::on(area);
        builder.margin(16).x_label_area_size(48).y_label_area_size(64);
        builder.caption(self.title, (FONT, 20));
        let mut chart = builder.build_cartesian_2d(sizes.clone(), self.axis.clone())?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("bytes of a message").label_style((FONT, 13)).axis_desc_style((FONT, 14));
        mesh.bold_line_style(BLACK.mix(0.15)).draw()?;
        for (number, line) in lines.iter().enumerate() {
            let style = colour(number).stroke_width(2).filled();
            let place = |run: &Figures| (f64::from(run.size).log2(), (self.figure)(run));
            chart
                .draw_series(LineSeries::new(line.runs.iter().map(place), style).point_size(3))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
        let mut legend = chart.configure_series_labels();
        // Both figures grow with the size: no line comes into this corner.
        legend.position(SeriesLabelPosition::UpperLeft).label_font((FONT, 14));
        legend.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        Ok(())
    }
}

/// One direction of a chart.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
    label: fn(&f64) -> String,
}

impl Axis {
    /// By powers of two: each is a tick.
    fn of_sizes(sizes: impl Iterator<Item = u32> + Clone) -> Self {
        let (least, most) = (sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1));
        let (from, to) = (least.ilog2(), most.next_power_of_two().ilog2());
        // A single size stands in the middle.
        let room = if from == to { 1.0 } else { 0.0 };
        Self {
            range: f64::from(from) - room..f64::from(to) + room,
            ticks: (from..=to).map(f64::from).collect(),
            label: |power| size_label(power.exp2() as u64),
        }
    }

    /// From zero.
    fn linear(figures: impl Iterator<Item = f64>) -> Self {
        let range = 0.0..figures.fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let ticks = RangedCoordf64::from(range.clone()).key_points(8);
        Self { range, ticks, label: |figure| format!("{}", (figure * 1e6).round() / 1e6) }
    }

    /// By powers of ten, with ticks at 1, 2 and 5 of each.
    fn of_decades(figures: impl Iterator<Item = f64> + Clone) -> Self {
        let least = figures.clone().fold(f64::INFINITY, f64::min);
        let range = (least * 0.8).log10()..(figures.fold(least, f64::max) * 1.25).log10();
        let decades = range.start.floor() as i32..=range.end.ceil() as i32;
        let ticks = decades
            .flat_map(|decade| [1.0f64, 2.0, 5.0].map(|tick| tick.log10() + f64::from(decade)));
        let ticks = ticks.filter(|tick| range.contains(tick)).collect();
        Self {
            range,
            ticks,
            label: |power| format!("{}", (10f64.powf(*power) * 1e3).round() / 1e3),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Lines between the ticks are asked for, too.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(value)
    }
}

/// Dark enough for lines on white, and of a hue far from those of the lines before.
fn colour(number: usize) -> HSLColor {
    let turn = (5f64.sqrt() - 1.0) / 2.0;
    HSLColor((number as f64 * turn).fract(), 0.8, 0.4)
}

/// In the words of `--size`.
fn size_label(size: u64) -> String {
    match size {
        0..1024 => size.to_string(),
        1024..1_048_576 => format!("{}k", size >> 10),
        _ => format!("{}M", size >> 20),
    }
}

const PIXELS: (u32, u32) = (960, 1080);
/// Whichever the viewer has: the picture brings no font.
const FONT: &str = "sans-serif";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::document::{Latency, Load};
    use serde_json::Value;

    fn run(operation: &str, size: u32, gigabits_per_second: f64, p50: f64) -> Figures {
        let latency_us = Latency { p50, p99: p50 };
        Figures { gigabits_per_second, latency_us, ..Figures::example(operation, size) }
    }

    #[test]
    fn an_operation_is_a_line_in_the_order_of_the_sizes() {
        let none = Figures { messages: 0, ..run("read", 64, 0.0, 0.0) };
        let runs = vec![
            run("send", 4096, 2.0, 9.0),
            run("read", 2, 1.0, 9.0),
            run("send", 64, 1.0, 9.0),
            none,
        ];
        let load = Load::default();
        let document = Document { edge: Value::Null, load, depth: 1, verified: true, runs };
        let lines = lines_of("before", &document);
        let shown: Vec<_> = lines
            .iter()
            .map(|line| (line.name.as_str(), line.runs.iter().map(|run| run.size).collect()))
            .collect();
        assert_eq!(shown, [("before: send", vec![64, 4096]), ("before: read", vec![2])]);
    }

    #[test]
    fn ticks_are_round_figures_within_the_axis() {
        let labels = |axis: &Axis| axis.ticks.iter().map(axis.label).collect::<Vec<_>>();
        let sizes = Axis::of_sizes([512, 5000].into_iter());
        assert_eq!(labels(&sizes), ["512", "1k", "2k", "4k", "8k"]);
        assert_eq!(labels(&Axis::of_sizes([1 << 23].into_iter())), ["8M"]);
        assert_eq!(labels(&Axis::of_decades([9.0, 130.0].into_iter())), ["10", "20", "50", "100"]);
        assert_eq!(labels(&Axis::of_decades([0.5].into_iter())), ["0.5"]);
        let linear = Axis::linear([3.0, 9.0].into_iter());
        assert_eq!(labels(&linear)[..3], ["0", "2", "4"]);
        assert!(linear.range.contains(&9.0));
    }

    /// Goal: a picture for whatever was measured, of one size or of the same figure throughout, too.
    #[test]
    fn every_line_is_drawn_in_both_charts_and_named() {
        let line = |name: &str, runs| Line { name: name.into(), runs };
        let lines = [
            line("a<b: send", vec![run("send", 64, 1.0, 9.0), run("send", 128, 1.0, 9.0)]),
            line("c: read", vec![run("read", 64, 0.0, 9.0)]),
        ];
        let svg = picture(&lines).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("a&lt;b: send").count(), 2, "{svg}");
        assert_eq!(svg.matches("c: read").count(), 2, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2 * 3, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
