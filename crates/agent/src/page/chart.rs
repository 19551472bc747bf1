//! Small charts.

use super::shown::{bytes, short};
use crate::status::SeriesStatus;
use maud::{Markup, html};

/// Size of a chart in its own coordinates.
const WIDTH: f64 = 180.0;
const HEIGHT: f64 = 36.0;

/// A metric of the last minutes: a line, its name, its last value and between what it was.
pub(super) fn chart(series: &SeriesStatus) -> Markup {
    let values = || series.points.iter().map(|(_, value)| *value).filter(|value| value.is_finite());
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    let shown = |value: f64| with_unit(value, &series.unit);
    html! {
        figure.chart {
            figcaption {
                span.name { (series.name) } " "
                @if let Some(last) = values().next_back() { strong { (shown(last)) } }
            }
            @if least <= most {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                    aria-label=(format!("{} between {} and {}", series.name, shown(least), shown(most)))
                {
                    polyline points=(line(&series.points, least, most)) {}
                }
                small { (shown(least)) " … " (shown(most)) }
            } @else {
                small { "no values yet" }
            }
        }
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "By" if value >= 0.0 => bytes(value as u64),
        "" | "1" => short(value),
        // `{goroutine}` says what is counted, which the name does too.
        unit if unit.starts_with('{') => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}

/// The points of the line; a metric that stays as it is, is a line in the middle.
fn line(points: &[(u64, f64)], least: f64, most: f64) -> String {
    let begin = points.first().map_or(0, |point| point.0);
    let end = points.last().map_or(0, |point| point.0);
    let span = end.saturating_sub(begin).max(1) as f64;
    let mut line = String::new();
    for (time, value) in points.iter().filter(|point| point.1.is_finite()) {
        let x = time.saturating_sub(begin) as f64 / span * WIDTH;
        let height = if most > least { (value - least) / (most - least) } else { 0.5 };
        let y = HEIGHT - 2.0 - height * (HEIGHT - 4.0);
        line.push_str(&format!("{x:.1},{y:.1} "));
    }
    // One point alone is no line.
    if points.len() == 1 {
        line.push_str(&format!("{WIDTH:.1},{:.1}", HEIGHT / 2.0));
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(u64, f64)]) -> SeriesStatus {
        SeriesStatus { name: "go.memory.used".into(), unit: "By".into(), points: points.to_vec() }
    }

    #[test]
    fn a_line_runs_from_the_least_to_the_most() {
        let points = [(100, 1024.0), (200, 2048.0), (300, 1024.0)];
        assert_eq!(line(&points, 1024.0, 2048.0), "0.0,34.0 90.0,2.0 180.0,34.0");
        let chart = chart(&series(&points)).into_string();
        assert!(chart.contains("<strong>1 KiB</strong>"), "{chart}");
        assert!(chart.contains("<small>1 KiB … 2 KiB</small>"), "{chart}");
    }

    #[test]
    fn charts_of_nothing_of_one_point_and_of_no_numbers_are_told() {
        assert!(chart(&series(&[])).into_string().contains("no values yet"));
        assert!(chart(&series(&[(1, f64::NAN)])).into_string().contains("no values yet"));
        assert_eq!(line(&[(7, 3.0)], 3.0, 3.0), "0.0,18.0 180.0,18.0");
        assert_eq!(line(&[(7, 3.0), (7, 3.0)], 3.0, 3.0), "0.0,18.0 0.0,18.0");
    }
}
