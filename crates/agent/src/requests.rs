//! Requests as metrics: how many there were of each kind, and how long they took. Made of all spans, those too
//! that are not sent.

use metrics::{Figure, FigurePoint, Histogram, Instrument, Tag, Tags, Value};
use sensors::{Attribute, Span, SpanKind, Witness};
use std::collections::HashMap;

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKind {
    /// Requests that an HTTP server answers.
    HttpServer,
    /// Requests that an HTTP client makes.
    HttpClient,
    /// What a database is asked.
    Database,
    /// Calls that a gRPC server answers.
    RpcServer,
    /// Calls that a gRPC client makes.
    RpcClient,
    /// Calls of a function.
    Function,
}

/// Upper bounds of durations that the conventions advise, seconds.
pub const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Of databases.
const DATABASE: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Of calls, which the conventions have in milliseconds without advice: those of the SDKs.
const CALLS_MS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10_000.0,
];
/// Of functions, which may be short.
const FUNCTIONS: [f64; 9] = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0];

/// Rows of one process at the most; what would be one more is counted in a row of its kind that
/// `otel.metric.overflow` marks.
const MAX_ROWS: usize = 1000;
/// Characters kept of a text.
const MAX_CHARS: usize = 128;

impl RowKind {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::HttpServer,
        Self::HttpClient,
        Self::Database,
        Self::RpcServer,
        Self::RpcClient,
        Self::Function,
    ];

    /// What a span is counted as.
    pub fn of(span: &Span) -> Option<Self> {
        let has = |name| span.attributes.iter().any(|(key, _)| *key == name);
        let is_server = span.kind == SpanKind::Server;
        if has("rpc.system") {
            return Some(if is_server { Self::RpcServer } else { Self::RpcClient });
        }
        // Rows are no operation: the query that gave them is one.
        if span.parent_by == Some(Witness::Rows) {
            return None;
        }
        if has("db.system.name") && !is_server {
            return Some(Self::Database);
        }
        if has("http.request.method") {
            return Some(if is_server { Self::HttpServer } else { Self::HttpClient });
        }
        None
    }

    /// Name of the metric (semantic conventions 1.43; those of calls as they were up to 1.38).
    pub const fn name(self) -> &'static str {
        match self {
            Self::HttpServer => "http.server.request.duration",
            Self::HttpClient => "http.client.request.duration",
            Self::Database => "db.client.operation.duration",
            Self::RpcServer => "rpc.server.duration",
            Self::RpcClient => "rpc.client.duration",
            Self::Function => "gospect.function.duration",
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::HttpServer => "Duration of HTTP server requests.",
            Self::HttpClient => "Duration of HTTP client requests.",
            Self::Database => "Duration of database client operations.",
            Self::RpcServer => "Duration of calls that a server answers.",
            Self::RpcClient => "Duration of calls that a client makes.",
            Self::Function => "Duration of calls of functions that are watched by name.",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::RpcServer | Self::RpcClient => "ms",
            _ => "s",
        }
    }

    const fn bounds(self) -> &'static [f64] {
        match self {
            Self::HttpServer | Self::HttpClient => &BOUNDS,
            Self::Database => &DATABASE,
            Self::RpcServer | Self::RpcClient => &CALLS_MS,
            Self::Function => &FUNCTIONS,
        }
    }

    /// Attributes of spans that tell rows apart.
    const fn tags(self) -> &'static [&'static str] {
        match self {
            Self::HttpServer => &[
                "error.type",
                "http.request.method",
                "http.response.status_code",
                "http.route",
                "network.protocol.version",
                "url.scheme",
            ],
            Self::HttpClient => &[
                "error.type",
                "http.request.method",
                "http.response.status_code",
                "server.address",
                "server.port",
            ],
            Self::Database => &["db.operation.name", "db.system.name", "error.type"],
            Self::RpcServer | Self::RpcClient => {
                &["rpc.grpc.status_code", "rpc.method", "rpc.service", "rpc.system"]
            }
            Self::Function => &[],
        }
    }
}

/// Counts of one set of attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// By bucket, one more than there are bounds.
    counts: Box<[u64]>,
    /// All durations, in the unit of the kind.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Row {
    fn new(kind: RowKind) -> Self {
        Self { counts: vec![0; kind.bounds().len() + 1].into(), sum: 0.0, count: 0 }
    }

    fn add(&mut self, bounds: &[f64], value: f64) {
        let bucket = bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
        self.count += 1;
    }

    fn histogram(&self, bounds: &[f64]) -> Histogram {
        let mut below = 0;
        let buckets = bounds.iter().zip(&self.counts).map(|(&bound, &count)| {
            below += count;
            (bound, below)
        });
        Histogram { buckets: buckets.collect(), sum: self.sum, count: self.count }
    }
}

/// All rows of one process.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    rows: HashMap<(RowKind, Tags), Row>,
}

impl Requests {
    /// Counts a span. One that was not seen to end has no duration, and counts not.
    pub fn span(&mut self, span: &Span) {
        let Some(kind) = RowKind::of(span).filter(|_| span.is_finished) else { return };
        let tags = kind.tags().iter().filter_map(|&name| {
            let (_, value) = span.attributes.iter().find(|(key, _)| *key == name)?;
            Some((name, tag(value)))
        });
        self.add(kind, tags.collect(), span.end_ns.saturating_sub(span.start_ns));
    }

    /// Counts a call of a function.
    pub fn call(&mut self, function: &str, ns: u64) {
        let name = Tag::Text(cut(function));
        self.add(RowKind::Function, vec![("code.function.name", name)], ns);
    }

    fn add(&mut self, kind: RowKind, tags: Tags, ns: u64) {
        let value = match kind.unit() {
            "ms" => ns as f64 / 1e6,
            _ => ns as f64 / 1e9,
        };
        let mut key = (kind, tags);
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            key.1 = vec![("otel.metric.overflow", Tag::Bool(true))];
        }
        self.rows.entry(key).or_insert_with(|| Row::new(kind)).add(kind.bounds(), value);
    }

    /// As figures, rows in the order of their attributes.
    pub fn figures(&self) -> Vec<Figure> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.0.cmp(b.0));
        let mut figures: Vec<Figure> = Vec::new();
        for ((kind, tags), row) in rows {
            let value = Value::Histogram(row.histogram(kind.bounds()));
            let point = FigurePoint { tags: tags.clone(), value };
            match figures.last_mut().filter(|figure| figure.name == kind.name()) {
                Some(figure) => figure.points.push(point),
                None => {
                    let mut figure =
                        Figure::new(kind.name(), kind.unit(), kind.help(), Instrument::Histogram);
                    figure.points.push(point);
                    figures.push(figure);
                }
            }
        }
        figures
    }
}

fn tag(value: &Attribute) -> Tag {
    match value {
        Attribute::Text(text) => Tag::Text(cut(text)),
        Attribute::Texts(_) => Tag::Text(cut(&value.to_string())),
        Attribute::Int(number) => Tag::Int(*number),
        Attribute::Bool(yes) => Tag::Bool(*yes),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sensors::{SpanContext, Status};

    /// A span of a server's request.
    pub(crate) fn request(route: &str, status: i64, ms: u64) -> Span {
        Span {
            name: format!("GET {route}"),
            kind: SpanKind::Server,
            context: SpanContext { trace: 1, span: 2 },
            parent: None,
            parent_by: None,
            sampled_by_parent: None,
            links: Vec::new(),
            pid: 7,
            goid: 1,
            start_ns: 1_000_000,
            end_ns: 1_000_000 + ms * 1_000_000,
            is_finished: true,
            status: if status < 500 { Status::Unset } else { Status::Error },
            attributes: vec![
                ("http.request.method".into(), Attribute::Text("GET".into())),
                ("http.response.status_code".into(), Attribute::Int(status)),
                ("http.route".into(), Attribute::Text(route.to_owned().into())),
                ("url.path".into(), Attribute::Text("/secret".into())),
                ("url.scheme".into(), Attribute::Text("http".into())),
            ],
            unavailable: Vec::new(),
            events: Vec::new(),
            time: None,
            calls: None,
            tree: 2,
            open_in_tree: 0,
        }
    }

    fn text(figures: &[Figure]) -> String {
        let mut text = String::new();
        for figure in figures {
            for point in &figure.points {
                let Value::Histogram(histogram) = &point.value else { panic!("{point:?}") };
                let counts: Vec<u64> = histogram.buckets.iter().map(|(_, count)| *count).collect();
                let tags: Vec<String> =
                    point.tags.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                text += &format!(
                    "{} {} {:?} sum {:.7} of {}\n",
                    figure.name,
                    tags.join(" "),
                    counts,
                    histogram.sum,
                    histogram.count
                );
            }
        }
        text
    }

    #[test]
    fn spans_become_the_conventions_histograms() {
        let mut requests = Requests::default();
        requests.span(&request("/a", 200, 4));
        requests.span(&request("/a", 200, 5));
        requests.span(&request("/a", 200, 6));
        requests.span(&request("/b", 500, 20_000));
        requests.span(&Span { is_finished: false, ..request("/a", 200, 1) });
        let mut rpc = request("/c", 200, 30);
        rpc.kind = SpanKind::Client;
        rpc.attributes = vec![("rpc.system".into(), Attribute::Text("grpc".into()))];
        requests.span(&rpc);
        rpc.attributes = vec![("db.system.name".into(), Attribute::Text("sqlite".into()))];
        requests.span(&rpc);
        rpc.parent_by = Some(Witness::Rows);
        requests.span(&rpc);
        rpc.parent_by = None;
        rpc.attributes = vec![("messaging.system".into(), Attribute::Text("kafka".into()))];
        requests.span(&rpc);
        requests.call("main.f", 1_500);
        let expected = "\
http.server.request.duration http.request.method=Text(\"GET\") http.response.status_code=Int(200) http.route=Text(\"/a\") url.scheme=Text(\"http\") [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3] sum 0.0150000 of 3
http.server.request.duration http.request.method=Text(\"GET\") http.response.status_code=Int(500) http.route=Text(\"/b\") url.scheme=Text(\"http\") [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] sum 20.0000000 of 1
db.client.operation.duration db.system.name=Text(\"sqlite\") [0, 0, 0, 1, 1, 1, 1, 1, 1] sum 0.0300000 of 1
rpc.client.duration rpc.system=Text(\"grpc\") [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] sum 30.0000000 of 1
gospect.function.duration code.function.name=Text(\"main.f\") [0, 0, 1, 1, 1, 1, 1, 1, 1] sum 0.0000015 of 1
";
        assert_eq!(text(&requests.figures()), expected);
    }

    #[test]
    fn rows_are_bounded() {
        let mut requests = Requests::default();
        for number in 0..2 * MAX_ROWS {
            requests.span(&request(&format!("/{number}"), 200, 1));
        }
        let figures = requests.figures();
        let [figure] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(figure.points.len(), MAX_ROWS + 1);
        let overflow = [("otel.metric.overflow", Tag::Bool(true))];
        let more = figure.points.iter().find(|point| point.tags == overflow).unwrap();
        let Value::Histogram(histogram) = &more.value else { panic!("{more:?}") };
        assert_eq!(histogram.count, MAX_ROWS as u64);
    }
}
