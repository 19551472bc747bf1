//! The sensors: which functions, what is read there, what it means.
//!
//! Expressions name fields, never a version; where versions call a thing differently, there is one
//! expression for each name, and the first that gives a value counts.

/// What a call of a watched function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server handles a request for as long as it runs.
    ServerRequest,
    /// The same, all of it: the response is brought to its end within, and a panic is caught.
    ServerRun,
    /// The header of a response is made for the wire.
    ServerHeader,
    /// A response is brought to its end, behind the handler.
    ServerFinish,
    /// A ServeMux chose a pattern for a request.
    Route,
    /// A handler takes the connection over.
    Hijack,
    /// A client sends a request and waits for the header of the response.
    ClientRequest,
    /// A gRPC server handles a call for as long as it runs.
    RpcServer,
    /// The status of a call is made for the wire.
    RpcStatus,
    /// A gRPC client makes a call and waits for its end.
    RpcClient,
    /// A gRPC client begins a stream: within [`Role::RpcClient`] that call's own.
    RpcStream,
    /// The stream is made.
    RpcStreamMade,
    /// A stream is over.
    RpcStreamEnd,
    /// A database is asked: for this, or for what its statement begins with.
    Database(Option<&'static str>),
    /// The next row of an answer is read, or there is none.
    Row,
    /// The rows of an answer are closed.
    RowsEnd,
}

/// What a value that is read means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Address of a part of a server's `response`: tells what is of one request from what is of others.
    Response,
    /// Status code.
    Status,
    /// Bytes of the response's body.
    Written,
    /// Method.
    Method,
    /// Path of the URL.
    Path,
    /// The path as it is escaped, where that is not how every path is.
    RawPath,
    /// What stands in a client's URL behind the scheme, instead of all else.
    Opaque,
    /// Query of the URL; only when it is asked for.
    Query,
    /// Scheme of the URL.
    Scheme,
    /// Host, with or without a port.
    Host,
    /// Protocol, as `HTTP/1.1`.
    Protocol,
    /// Length of the request's body, -1 when unknown.
    Length,
    /// Address and port of the peer.
    Peer,
    /// Address of a part of what is known of the TLS connection; a nil pointer on the way without one.
    Tls,
    /// What the header or the metadata has of the trace: nil pointer on the way without any.
    TraceParent,
    /// The first name that a client adds to a header, and its value.
    AddedName,
    /// See [`Field::AddedName`].
    AddedValue,
    /// Address of a part of the server's `response` that a context is of.
    OfResponse,
    /// A call's service and method, `/package.Service/Method`.
    FullMethod,
    /// Whom a client speaks to.
    Target,
    /// Address of a part of a client's stream.
    Stream,
    /// Pattern of a route.
    Pattern,
    /// Address of a request's own context, and of those that a context comes from.
    Context,
    /// Text of a statement.
    Statement,
    /// Not 0, or true, when there is nothing to be asked any more.
    Over,
    /// Address of a part of the rows that a query gives.
    Rows,
    /// Whether there was a row.
    Row,
    /// An error.
    Error,
    /// Text of an error, when it is a plain one.
    ErrorText,
    /// An error of somebody who ends something.
    Reason,
}

impl Field {
    /// As a person reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Status => "status",
            Self::Written => "written",
            Self::Method => "method",
            Self::Path => "path",
            Self::RawPath => "escaped path",
            Self::Opaque => "opaque URL",
            Self::Query => "query",
            Self::Scheme => "scheme",
            Self::Host => "host",
            Self::Protocol => "protocol",
            Self::Length => "length",
            Self::Peer => "peer",
            Self::Tls => "TLS",
            Self::TraceParent => "traceparent",
            Self::AddedName => "added name",
            Self::AddedValue => "added value",
            Self::OfResponse => "response of the context",
            Self::FullMethod => "service and method",
            Self::Target => "target",
            Self::Stream => "stream",
            Self::Pattern => "pattern",
            Self::Context => "context",
            Self::Statement => "statement",
            Self::Over => "over",
            Self::Rows => "rows",
            Self::Row => "row",
            Self::Error => "error",
            Self::ErrorText => "text of the error",
            Self::Reason => "reason",
        }
    }
}

/// One value of a sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it means.
    pub field: Field,
    /// The expression, as [`probe::expression::Operand`] writes it.
    pub expression: &'static str,
}

/// One watched function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// Name as pclntab has it.
    pub function: &'static str,
    /// What its calls mean.
    pub role: Role,
    /// What is read at the entry.
    pub entry: &'static [Read],
    /// What is read at returns.
    pub exit: &'static [Read],
    /// The context, as an expression: those that it comes from are read too.
    pub context: Option<&'static str>,
}

/// What contexts may be made of, one inside the other, the innermost being that of a request, which is a
/// `cancelCtx` (`net/http.(*conn).readRequest`, `(*http2serverConn).newStream`). Each has the one that it comes
/// from in its field `Context` (`context/context.go`).
const CONTEXTS: [&[&str]; 5] = [
    &[],
    &["valueCtx"],
    &["cancelCtx"],
    &["timerCtx"],
    // More of them, and a program has no room for the header.
    &["timerCtx", "valueCtx"],
];

/// Expressions for the address of a request's context that one comes from.
fn context_expressions(context: &str) -> impl Iterator<Item = String> {
    CONTEXTS.iter().map(move |outer| {
        let outer = outer.iter().map(|name| format!(".(*context.{name}).Context"));
        format!("&{context}{}.(*context.cancelCtx).Context", outer.collect::<String>())
    })
}

impl Sensor {
    /// All that is read at the entry, with what it means.
    pub fn at_entry(&self) -> Vec<(Field, String)> {
        let chain = self.context.into_iter().flat_map(context_expressions);
        owned(self.entry).chain(chain.map(|expression| (Field::Context, expression))).collect()
    }

    /// All that is read at returns, with what it means.
    pub fn at_return(&self) -> Vec<(Field, String)> {
        owned(self.exit).collect()
    }
}

fn owned(reads: &[Read]) -> impl Iterator<Item = (Field, String)> {
    reads.iter().map(|read| (read.field, read.expression.to_owned()))
}

const fn read(field: Field, expression: &'static str) -> Read {
    Read { field, expression }
}

/// A method of database/sql that asks a database for one thing.
const fn sql(
    function: &'static str,
    operation: &'static str,
    context: &'static str,
    exit: &'static [Read],
) -> Sensor {
    let role = Role::Database(Some(operation));
    Sensor { function, role, entry: &[], exit, context: Some(context) }
}

/// One that asks for what a statement says.
const fn statement(function: &'static str, entry: &'static [Read]) -> Sensor {
    Sensor { function, role: Role::Database(None), entry, exit: SECOND, context: Some("ctx") }
}

/// One that gives rows.
const fn query(function: &'static str, entry: &'static [Read]) -> Sensor {
    Sensor { exit: ROWS, ..statement(function, entry) }
}

/// The header as `net/http` writes names. All values of that name.
const TRACEPARENT: &str = "req.Header[\"Traceparent\"]";

/// What a server reads of a request `req`, with the expressions for where it answers.
macro_rules! request {
    ($($response:literal),* $(,)?) => {
        &[
            $(read(Field::Response, $response),)*
            read(Field::Method, "req.Method"),
            read(Field::Path, "req.URL.Path"),
            read(Field::Query, "req.URL.RawQuery"),
            read(Field::Host, "req.Host"),
            read(Field::Protocol, "req.Proto"),
            read(Field::Length, "req.ContentLength"),
            read(Field::Peer, "req.RemoteAddr"),
            read(Field::Tls, "&req.TLS.Version"),
            read(Field::Context, "&req.ctx.(*context.cancelCtx).Context"),
            // What net/http/internal/http2 has it in.
            read(Field::Context, "&req.Context.(*context.cancelCtx).Context"),
            read(Field::TraceParent, TRACEPARENT),
        ]
    };
}

/// What a client reads of a request, and of what comes of it. The results of net/http's function got names with Go 1.23.
const SENT: &[Read] = &[
    read(Field::Method, "req.Method"),
    read(Field::Scheme, "req.URL.Scheme"),
    read(Field::Host, "req.URL.Host"),
    read(Field::Path, "req.URL.Path"),
    read(Field::RawPath, "req.URL.RawPath"),
    read(Field::Opaque, "req.URL.Opaque"),
    read(Field::Query, "req.URL.RawQuery"),
    read(Field::Length, "req.ContentLength"),
    read(Field::TraceParent, TRACEPARENT),
];
const GOT: &[Read] = &[
    read(Field::Status, "~r0.StatusCode"),
    read(Field::Status, "_.StatusCode"),
    read(Field::Error, "~r1"),
    read(Field::Error, "err"),
];

/// A function that sends a request and waits for the header of the response.
const fn client(function: &'static str) -> Sensor {
    let role = Role::ClientRequest;
    Sensor { function, role, entry: SENT, exit: GOT, context: Some("req.ctx") }
}

/// Of a response over HTTP/2. Its status is 0 as long as there is none: then it becomes 200.
const STREAM: &[Read] = &[
    read(Field::Response, "&w.rws.stream.id"),
    read(Field::Status, "w.rws.status"),
    read(Field::Written, "w.rws.wroteBytes"),
];

/// A function that sends a header over HTTP/2: of a response, interim or not, or behind its body (status 0).
const fn stream_header(function: &'static str) -> Sensor {
    const HEADER: &[Read] =
        &[read(Field::Response, "&st.id"), read(Field::Status, "headerData.httpResCode")];
    Sensor { function, role: Role::ServerHeader, entry: HEADER, exit: &[], context: None }
}

/// Of a call that a gRPC client makes.
const ASKED: &[Read] = &[
    read(Field::FullMethod, "method"),
    read(Field::Target, "cc.target"),
    read(
        Field::AddedName,
        "ctx.(*context.valueCtx).val.(google.golang.org/grpc/metadata.rawMD).added[0][0]",
    ),
    read(
        Field::AddedValue,
        "ctx.(*context.valueCtx).val.(google.golang.org/grpc/metadata.rawMD).added[0][1]",
    ),
    // That of a handler, and one with metadata of its own; up to gRPC 1.68, and since.
    read(
        Field::OfResponse,
        "&ctx.(*context.valueCtx).val.(*google.golang.org/grpc/internal/transport.Stream).id",
    ),
    read(
        Field::OfResponse,
        "&ctx.(*context.valueCtx).val.(*google.golang.org/grpc/internal/transport.ServerStream).id",
    ),
    read(
        Field::OfResponse,
        "&ctx.(*context.valueCtx).Context.(*context.valueCtx).val.(*google.golang.org/grpc/internal/transport.Stream).id",
    ),
    read(
        Field::OfResponse,
        "&ctx.(*context.valueCtx).Context.(*context.valueCtx).val.(*google.golang.org/grpc/internal/transport.ServerStream).id",
    ),
    read(
        Field::TraceParent,
        "ctx.(*context.valueCtx).val.(google.golang.org/grpc/metadata.rawMD).md[\"traceparent\"]",
    ),
];

/// What a gRPC server tells the other side.
const TOLD: &[Read] = &[read(Field::Response, "&s.id"), read(Field::Status, "st.s.Code")];

/// A function of gRPC's transport that writes the status.
const fn rpc_status(function: &'static str) -> Sensor {
    Sensor { function, role: Role::RpcStatus, entry: TOLD, exit: &[], context: None }
}

const FIRST: &[Read] = &[read(Field::Error, "~r0")];
/// `atomic.Bool`, and a number before Go 1.21.
const ROLLING_BACK: &[Read] = &[read(Field::Over, "tx.done.v"), read(Field::Over, "tx.done")];
const ROLLED_BACK: &[Read] = &[FIRST[0], read(Field::ErrorText, "~r0.(*errors.errorString).s")];
const SECOND: &[Read] = &[read(Field::Error, "~r1")];
const ROWS: &[Read] = &[read(Field::Rows, "&~r0.dc"), SECOND[0]];
const QUERY: &[Read] = &[read(Field::Statement, "query")];
const PREPARED: &[Read] = &[read(Field::Statement, "s.query")];

/// All sensors. Functions and fields are those of net/http (`server.go`, `servemux121.go`, `transport.go`) and database/sql
/// (`sql.go`) of Go 1.19 to 1.27, and of google.golang.org/grpc 1.63 to 1.85
/// (`server.go`, `call.go`, `stream.go`, `internal/transport`).
pub const SENSORS: &[Sensor] = &[
    Sensor {
        function: "net/http.serverHandler.ServeHTTP",
        role: Role::ServerRequest,
        entry: request![
            "&rw.(*net/http.response).status",
            // HTTP/2, up to Go 1.26 and since; with the server of golang.org/x/net.
            "&rw.(*net/http.http2responseWriter).rws.stream.id",
            "&rw.(net/http.http2ResponseWriter).rws.stream.id",
            "&rw.(*golang.org/x/net/http2.responseWriter).rws.stream.id",
        ],
        exit: &[],
        context: None,
    },
    // HTTP/2 without TLS by golang.org/x/net, which hands requests to the program's handler itself: up to Go 1.26, and
    // since, where it leaves the protocol to net/http.
    Sensor {
        function: "golang.org/x/net/http2.(*serverConn).runHandler",
        role: Role::ServerRun,
        entry: request!["&rw.rws.stream.id"],
        exit: &[],
        context: None,
    },
    Sensor {
        function: "net/http/internal/http2.(*serverConn).runHandler",
        role: Role::ServerRun,
        entry: request!["&rw.rws.stream.id"],
        exit: &[],
        context: None,
    },
    Sensor {
        function: "net/http.(*chunkWriter).writeHeader",
        role: Role::ServerHeader,
        entry: &[read(Field::Response, "&cw.res.status"), read(Field::Status, "cw.res.status")],
        exit: &[],
        context: None,
    },
    // HTTP/2, up to Go 1.26 and since; the end of a response tells its status too, but has none behind a panic.
    stream_header("net/http.(*http2serverConn).writeHeaders"),
    stream_header("net/http/internal/http2.(*serverConn).writeHeaders"),
    stream_header("golang.org/x/net/http2.(*serverConn).writeHeaders"),
    Sensor {
        function: "net/http.(*response).finishRequest",
        role: Role::ServerFinish,
        entry: &[read(Field::Response, "&w.status"), read(Field::Written, "w.written")],
        exit: &[],
        context: None,
    },
    // HTTP/2, up to Go 1.26 and since.
    Sensor {
        function: "net/http.(*http2responseWriter).handlerDone",
        role: Role::ServerFinish,
        entry: STREAM,
        exit: &[],
        context: None,
    },
    Sensor {
        function: "net/http/internal/http2.(*responseWriter).handlerDone",
        role: Role::ServerFinish,
        entry: STREAM,
        exit: &[],
        context: None,
    },
    Sensor {
        function: "golang.org/x/net/http2.(*responseWriter).handlerDone",
        role: Role::ServerFinish,
        entry: STREAM,
        exit: &[],
        context: None,
    },
    // From Go 1.22 on; with GODEBUG=httpmuxgo121=1 the one below does its work.
    Sensor {
        function: "net/http.(*ServeMux).findHandler",
        role: Role::Route,
        entry: &[],
        exit: &[read(Field::Pattern, "patStr")],
        context: None,
    },
    Sensor {
        function: "net/http.(*serveMux121).findHandler",
        role: Role::Route,
        entry: &[],
        exit: &[read(Field::Pattern, "pattern")],
        context: None,
    },
    Sensor {
        function: "net/http.(*ServeMux).Handler",
        role: Role::Route,
        entry: &[],
        exit: &[read(Field::Pattern, "pattern")],
        context: None,
    },
    Sensor {
        function: "net/http.(*response).Hijack",
        role: Role::Hijack,
        entry: &[read(Field::Response, "&w.status")],
        exit: &[read(Field::Error, "err")],
        context: None,
    },
    client("net/http.(*Transport).roundTrip"),
    // The client of golang.org/x/net, where it is used without that of net/http.
    client("golang.org/x/net/http2.(*Transport).RoundTrip"),
    // gRPC. Unary calls and streams, known methods and unknown ones go through this.
    Sensor {
        function: "google.golang.org/grpc.(*Server).handleStream",
        role: Role::RpcServer,
        entry: &[
            read(Field::Response, "&stream.id"),
            read(Field::FullMethod, "stream.method"),
            read(
                Field::TraceParent,
                "stream.ctx.(*context.valueCtx).val.(google.golang.org/grpc/metadata.MD)[\"traceparent\"]",
            ),
        ],
        exit: &[],
        context: None,
    },
    // Up to gRPC 1.68, and since; the other two within a server of net/http.
    rpc_status("google.golang.org/grpc/internal/transport.(*http2Server).WriteStatus"),
    rpc_status("google.golang.org/grpc/internal/transport.(*http2Server).writeStatus"),
    rpc_status("google.golang.org/grpc/internal/transport.(*serverHandlerTransport).WriteStatus"),
    rpc_status("google.golang.org/grpc/internal/transport.(*serverHandlerTransport).writeStatus"),
    // Behind the interceptors of the client.
    Sensor {
        function: "google.golang.org/grpc.invoke",
        role: Role::RpcClient,
        entry: ASKED,
        exit: &[
            read(Field::Error, "~r0"),
            read(Field::Status, "~r0.(*google.golang.org/grpc/internal/status.Error).s.s.Code"),
        ],
        context: None,
    },
    Sensor {
        function: "google.golang.org/grpc.newClientStream",
        role: Role::RpcStream,
        entry: ASKED,
        exit: &[
            read(Field::Error, "err"),
            read(Field::Status, "err.(*google.golang.org/grpc/internal/status.Error).s.s.Code"),
        ],
        context: None,
    },
    Sensor {
        function: "google.golang.org/grpc.newClientStreamWithParams",
        role: Role::RpcStreamMade,
        entry: &[],
        // A result without a name is the one or the other in debug information.
        exit: &[
            read(Field::Stream, "&~r0.(*google.golang.org/grpc.clientStream).cc"),
            read(Field::Stream, "&~b0.(*google.golang.org/grpc.clientStream).cc"),
        ],
        context: None,
    },
    Sensor {
        function: "google.golang.org/grpc.(*clientStream).finish",
        role: Role::RpcStreamEnd,
        entry: &[
            read(Field::Stream, "&cs.cc"),
            read(Field::Error, "err"),
            read(Field::ErrorText, "err.(*errors.errorString).s"),
            read(Field::Status, "err.(*google.golang.org/grpc/internal/status.Error).s.s.Code"),
        ],
        exit: &[],
        context: None,
    },
    // The other methods of these types call one of these.
    query("database/sql.(*DB).QueryContext", QUERY),
    statement("database/sql.(*DB).ExecContext", QUERY),
    query("database/sql.(*Conn).QueryContext", QUERY),
    statement("database/sql.(*Conn).ExecContext", QUERY),
    query("database/sql.(*Tx).QueryContext", QUERY),
    statement("database/sql.(*Tx).ExecContext", QUERY),
    query("database/sql.(*Stmt).QueryContext", PREPARED),
    statement("database/sql.(*Stmt).ExecContext", PREPARED),
    // Where `(*Rows).Next` holds the lock that whoever closes the rows waits for.
    Sensor {
        function: "database/sql.(*Rows).nextLocked",
        role: Role::Row,
        entry: &[read(Field::Rows, "&rs.dc")],
        exit: &[read(Field::Row, "ok")],
        context: None,
    },
    // By `Close`, behind the last row, with the transaction or by the context.
    Sensor {
        function: "database/sql.(*Rows).close",
        role: Role::RowsEnd,
        entry: &[
            read(Field::Rows, "&rs.dc"),
            read(Field::Over, "rs.closed"),
            read(Field::Error, "rs.lasterr"),
            read(Field::ErrorText, "rs.lasterr.(*errors.errorString).s"),
            read(Field::Reason, "err"),
        ],
        exit: FIRST,
        context: None,
    },
    sql("database/sql.(*DB).PrepareContext", "PREPARE", "ctx", SECOND),
    sql("database/sql.(*Conn).PrepareContext", "PREPARE", "ctx", SECOND),
    sql("database/sql.(*Tx).PrepareContext", "PREPARE", "ctx", SECOND),
    sql("database/sql.(*DB).BeginTx", "BEGIN", "ctx", SECOND),
    sql("database/sql.(*Conn).BeginTx", "BEGIN", "ctx", SECOND),
    sql("database/sql.(*Tx).Commit", "COMMIT", "tx.ctx", FIRST),
    // Its exported sibling is inlined. One of a transaction that is over asks for nothing.
    Sensor {
        entry: ROLLING_BACK,
        ..sql("database/sql.(*Tx).rollback", "ROLLBACK", "tx.ctx", ROLLED_BACK)
    },
    sql("database/sql.(*DB).PingContext", "PING", "ctx", FIRST),
    sql("database/sql.(*Conn).PingContext", "PING", "ctx", FIRST),
];

#[cfg(test)]
mod tests {
    use super::*;
    use probe::expression::Operand;

    #[test]
    fn every_expression_stands_as_plans_write_it() {
        for sensor in SENSORS {
            for (_, text) in sensor.at_entry().into_iter().chain(sensor.at_return()) {
                assert_eq!(Operand::parse(&text).unwrap().to_string(), text, "{}", sensor.function);
            }
        }
    }
}
