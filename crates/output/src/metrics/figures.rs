//! Figures of any name in Prometheus's text exposition format.

use metrics::{Figure, Instrument, Tag, Value};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes figures; those of one name together, as the format wants it, in the order in which the names first
/// come. Each group is of one process, whose labels come first.
pub fn write_figures(groups: &[(String, Vec<Figure>)], out: &mut dyn Write) -> io::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for figure in groups.iter().flat_map(|(_, figures)| figures) {
        if !names.contains(&&*figure.name) {
            names.push(&figure.name);
        }
    }
    for name in names {
        let mut text = String::new();
        for (labels, figures) in groups {
            for figure in figures.iter().filter(|figure| figure.name == name) {
                if text.is_empty() {
                    push_head(&mut text, figure);
                }
                push_points(&mut text, labels, figure);
            }
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn push_head(text: &mut String, figure: &Figure) {
    let name = figure.prometheus_name();
    let kind = match figure.instrument {
        Instrument::Counter => "counter",
        Instrument::UpDownCounter | Instrument::Gauge => "gauge",
        Instrument::Histogram => "histogram",
    };
    _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", figure.help);
}

fn push_points(text: &mut String, labels: &str, figure: &Figure) {
    let name = figure.prometheus_name();
    for point in &figure.points {
        if matches!(point.value, Value::Summary(_)) {
            continue;
        }
        let mut own = labels.to_owned();
        for (key, tag) in &point.tags {
            let value = match tag {
                Tag::Text(text) => text.clone(),
                Tag::Int(number) => number.to_string(),
                Tag::Bool(yes) => yes.to_string(),
            };
            push_label(&mut own, &key.replace('.', "_"), &value);
        }
        for line in point.value.lines() {
            let mut all = own.clone();
            if let Some((key, value)) = &line.label {
                push_label(&mut all, key, value);
            }
            _ = match all.is_empty() {
                true => writeln!(text, "{name}{} {}", line.suffix, line.number),
                false => writeln!(text, "{name}{}{{{all}}} {}", line.suffix, line.number),
            };
        }
    }
}

fn push_label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    super::exposition::push_quoted(out, name, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{FigurePoint, Histogram};

    #[test]
    fn figures_of_one_name_stand_together() {
        let histogram = Histogram { buckets: vec![(0.1, 1)], sum: 0.75, count: 2 };
        let mut took = Figure::new("x.took", "s", "How long.", Instrument::Histogram);
        let tags = vec![("http.route", Tag::Text("/a\"".to_owned())), ("code", Tag::Int(200))];
        took.points.push(FigurePoint { tags, value: Value::Histogram(histogram) });
        let count = Figure::new("x.count", "{x}", "How many.", Instrument::Counter);
        let groups = [
            ("pid=\"1\"".to_owned(), vec![took, count.clone().with(Vec::new(), 3)]),
            (String::new(), vec![count.with(Vec::new(), 4)]),
        ];
        let mut out = Vec::new();
        write_figures(&groups, &mut out).unwrap();
        let expected = r#"# HELP x_took_seconds How long.
# TYPE x_took_seconds histogram
x_took_seconds_bucket{pid="1",http_route="/a\"",code="200",le="0.1"} 1
x_took_seconds_bucket{pid="1",http_route="/a\"",code="200",le="+Inf"} 2
x_took_seconds_sum{pid="1",http_route="/a\"",code="200"} 0.75
x_took_seconds_count{pid="1",http_route="/a\"",code="200"} 2
# HELP x_count_total How many.
# TYPE x_count_total counter
x_count_total{pid="1"} 3
x_count_total 4
"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
