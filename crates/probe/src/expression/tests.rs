use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn literal(literal: &Literal) -> String {
    match literal {
        Literal::Text(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Literal::Int(n) => n.to_string(),
        Literal::Float(n) => format!("{n:?}"),
        Literal::Bool(value) => value.to_string(),
        Literal::Nil => "nil".to_owned(),
        Literal::Duration(ns) => format!("{ns}ns"),
    }
}

fn side(side: &Side) -> String {
    match side {
        Side::Operand(operand) => operand.to_string(),
        Side::Literal { literal: value, .. } => literal(value),
    }
}

/// Fully parenthesised.
fn condition(condition: &Condition) -> String {
    let join = |parts: &[Condition], sign: &str| {
        let parts: Vec<String> = parts.iter().map(super::tests::condition).collect();
        format!("({})", parts.join(sign))
    };
    match condition {
        Condition::Is(value) => side(value),
        Condition::Compare { comparison, left, right, .. } => {
            format!("({} {comparison} {})", side(left), side(right))
        }
        Condition::Not(inner) => format!("!{}", super::tests::condition(inner)),
        Condition::All(parts) => join(parts, " && "),
        Condition::Any(parts) => join(parts, " || "),
    }
}

fn list(operands: &[Operand]) -> String {
    let all: Vec<String> = operands.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// Pattern, then what is read at the entry and at the return.
fn request(text: &str) -> String {
    let request = match Request::parse(text) {
        Err(error) => return error.to_string(),
        Ok(request) => request,
    };
    let mut out = request.pattern.to_string();
    match &request.params {
        None => {}
        Some(Params::Values(operands)) => write!(out, " ({})", list(operands)).unwrap(),
        Some(Params::Raw(params)) => {
            for param in params {
                write!(out, " {}={}:{}", param.name, param.expr, param.ty).unwrap();
            }
        }
    }
    if let Some(results) = &request.results {
        write!(out, " -> ({})", list(results)).unwrap();
    }
    let Declarations { params, results } = &request.declared;
    for (declared, what) in [(params, "takes"), (results, "gives")] {
        let Some(declared) = declared else { continue };
        let all = declared.iter().map(|one| format!("{}:{}@{}", one.name, one.ty, one.column));
        write!(out, " {what} {}", all.collect::<Vec<_>>().join(" ")).unwrap();
    }
    out
}

fn check(cases: &[(&str, &str)], show: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(show(text), *expected, "{text}");
    }
}

#[test]
fn operands() {
    let cases = [
        ("x", "x"),
        (" req . URL . Path ", "req.URL.Path"),
        ("items[0].Name", "items[0].Name"),
        ("r.Header[ \"Traceparent\" ][0]", "r.Header[\"Traceparent\"][0]"),
        ("items[0x10]", "items[16]"),
        ("len(req.Header)", "len(req.Header)"),
        ("cap( ( b ) )", "cap(b)"),
        ("len", "len"),
        ("*p", "*p"),
        ("**p.q", "**p.q"),
        ("(*p).q", "(*p).q"),
        ("(p).q", "p.q"),
        ("&x.y[3]", "&x.y[3]"),
        ("w.(*net/http.response).status", "w.(*net/http.response).status"),
        ("e.( map[string]func(int) error )", "e.(map[string]func(int) error)"),
        ("$goid", "$goid"),
        ("$duration", "$duration"),
        ("~r0", "~r0"),
        ("net/http.DefaultClient.Timeout", "net/http.DefaultClient.Timeout"),
        ("github.com/a-b/c_d.Var.f", "github.com/a-b/c_d.Var.f"),
        ("gopkg.in/yaml%2ev3.X", "gopkg.in/yaml%2ev3.X"),
        ("größe.ñ", "größe.ñ"),
        (
            "",
            "column 1: expected a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '(', found the end",
        ),
        ("x.", "column 3: expected a field, or '(' and a type, found the end"),
        ("x.1", "column 3: expected a field, or '(' and a type, found '1'"),
        ("x[y]", "column 3: expected the number of an element, or a key, found 'y'"),
        ("x[1", "column 4: expected ']' behind it, found the end"),
        (
            "x[99999999999999999999]",
            "column 3: expected a number, or a duration as in 10ms, found '99999999999999999999'",
        ),
        ("x.(", "column 4: expected ')' after the type, found the end"),
        ("x.( )", "column 5: expected a type, as in (*net/http.response), found ')'"),
        ("len(x", "column 6: expected ')', '.' or '[', found the end"),
        ("$x", "column 1: expected '$goid' or '$duration', found '$x'"),
        ("a b", "column 3: expected '.', '[' or the end, found 'b'"),
        ("a#", "column 2: expected a name, a number, a string or an operator, found '#'"),
    ];
    check(&cases, |text| match Operand::parse(text) {
        Ok(operand) => operand.to_string(),
        Err(error) => error.to_string(),
    });
}

#[test]
fn conditions() {
    let cases = [
        ("len(s) > 100 && user.ID != 0", "((len(s) > 100) && (user.ID != 0))"),
        ("a||b&&!c", "(a || (b && !c))"),
        ("(a || b) && c == \"x\\n\\x41\\\"\"", "((a || b) && (c == \"x\\nA\\\"\"))"),
        ("s == `a\\b`", "(s == \"a\\\\b\")"),
        ("err != nil", "(err != nil)"),
        ("x == -5 || y >= -1.5e3", "((x == -5) || (y >= -1500.0))"),
        ("1_000 < n", "(1000 < n)"),
        ("d > 1m30.5s", "(d > 90500000000ns)"),
        ("d > 2µs", "(d > 2000ns)"),
        ("(*p).n == 0xff", "((*p).n == 255)"),
        ("(((p.ok)))", "p.ok"),
        ("!!ok", "!!ok"),
        ("n == 18446744073709551615", "(n == 18446744073709551615)"),
        ("x == -9223372036854775808", "(x == -9223372036854775808)"),
        ("a == b == c", "column 8: expected '&&', '||', a comparison or the end, found '='"),
        ("(a == b) == c", "column 10: expected '&&', '||', a comparison or the end, found '='"),
        ("a == (b && c)", "column 6: expected a value or a constant, found '('"),
        ("a = b", "column 3: expected a name, a number, a string or an operator, found '='"),
        (
            "a &&",
            "column 5: expected a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '(', found the end",
        ),
        ("s == \"abc", "column 10: expected '\"' at the end of the string, found the end"),
        ("s == \"\\q\"", "column 8: expected one of n t r x \\ \" ', found 'q'"),
        ("n > 12abc", "column 5: expected a number, or a duration as in 10ms, found '12abc'"),
        ("n > -x", "column 6: expected a number of at most 64 bits after '-', found 'x'"),
        ("(a", "column 3: expected ')', '&&' or '||', found the end"),
        (
            "> 3",
            "column 1: expected a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '(', found '>'",
        ),
    ];
    check(&cases, |text| match Condition::parse(text) {
        Ok(parsed) => condition(&parsed),
        Err(error) => error.to_string(),
    });
    let cases = [
        ("> 10ms", "($duration > 10000000ns)"),
        (
            ">= 1ms && < 2ms || == 5s",
            "((($duration >= 1000000ns) && ($duration < 2000000ns)) || ($duration == 5000000000ns))",
        ),
        ("$duration > 3", "($duration > 3)"),
    ];
    check(&cases, |text| match Condition::parse_duration(text) {
        Ok(parsed) => condition(&parsed),
        Err(error) => error.to_string(),
    });
}

#[test]
fn nesting_has_an_end() {
    let nested = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    assert!(Condition::parse(&nested(MAX_NESTING)).is_ok());
    for text in [
        nested(MAX_NESTING + 1),
        format!("{}a", "!".repeat(40)),
        format!("{}a", "*".repeat(40)),
        format!("{}a{}", "len(".repeat(40), ")".repeat(40)),
    ] {
        let error = Condition::parse(&text).unwrap_err().to_string();
        assert!(error.contains("at most 32 levels of nesting"), "{error}");
    }
    // Chains are no nesting.
    assert!(Operand::parse(&format!("a{}", ".b".repeat(20_000))).is_ok());
    assert!(Condition::parse(&vec!["a"; 10_000].join("&&")).is_ok());
    assert!(Operand::parse(&"a".repeat(MAX_LENGTH + 1)).is_err());
}

#[test]
fn requests() {
    let cases = [
        ("main.*", "main.*"),
        ("main.(*T).M", "main.(*T).M"),
        ("main.(*T)", "main.(*T)"),
        ("main.f()", "main.f"),
        ("main.f(a)", "main.f (a)"),
        ("main.f(*p)", "main.f (*p)"),
        ("main.(*T).M(*t, t.x)", "main.(*T).M (*t, t.x)"),
        (
            "main.handle(req.Method, len(req.Header)) -> (code, err)",
            "main.handle (req.Method, len(req.Header)) -> (code, err)",
        ),
        ("main.f -> err", "main.f -> (err)"),
        ("main.f() -> (err)", "main.f -> (err)"),
        ("main.f(a) -> ()", "main.f (a)"),
        ("main.f(w.(*net/http.response).status)", "main.f (w.(*net/http.response).status)"),
        ("main.f(a=%ax:s64)", "main.f a=%ax:s64"),
        ("main.f( a.b = +8(%ax) : s64 ) -> ~r0", "main.f a.b=+8(%ax):s64 -> (~r0)"),
        ("main.Map[go.shape.int](x[1])", "main.Map[go.shape.int] (x[1])"),
        ("main.F[struct { A int \"k=(v->\" }](x)", "main.F[struct { A int \"k=(v->\" }] (x)"),
        ("net/http*(*conn)*", "net/http*(*conn)*"),
        ("main.*(x)", "main.* (x)"),
        ("/main.(add|sub)/", "/main.(add|sub)/"),
        ("/^main/(net/http.Default)", "/^main/ (net/http.Default)"),
        ("/a()/ -> x", "/a()/ -> (x)"),
        ("main.f.func1(x)", "main.f.func1 (x)"),
        ("main.f(a", "column 9: expected ',', ')', '.' or '[', found the end"),
        (
            "main.f(a,)",
            "column 10: expected a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '(', found ')'",
        ),
        ("main.f(a == b)", "column 10: expected ',', ')', '.' or '[', found '='"),
        (
            "main.f(a, b=%ax:s64)",
            "column 12: expected a name, a number, a string or an operator, found '='",
        ),
        ("main.f(a) b", "column 11: expected '->' or the end after the list, found 'b'"),
        ("main.f(a) -> b, c", "column 15: expected the end after the results, found ','"),
        (
            "main.f(a) -> ",
            "column 14: expected a name, '$goid', '$duration', 'len(', 'cap(', '*', '&' or '(', found the end",
        ),
        ("main.f(=%ax:s64)", "column 8: expected an argument's name, found '='"),
        ("main.f(%ax:s64)", "column 8: expected an argument's name, found '%'"),
        (
            "main.f(a=%ax:s65) -> r",
            "column 14: expected a type (s8 s16 s32 s64 u8 u16 u32 u64 f32 f64 c8…c4096), found 's65'",
        ),
        ("(a)", "column 1: empty pattern; name a function, as in 'main.*'"),
        ("-> err", "column 1: empty pattern; name a function, as in 'main.*'"),
    ];
    check(&cases, request);
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*") {
        let _ = (Request::parse(&text), Condition::parse(&text), Condition::parse_duration(&text));
    }

    #[test]
    fn no_likely_text_makes_a_parser_panic(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "a", "len", "(", ")", "[", "]", ".", "*", "&", "!", "&&", "||", "==", "<", "->", "-",
                "1", "0x", "1.5", "ms", "\"", "`", "\\", "$goid", "$", "/", "%", " ", "=", ":", ",",
                "nil", "é", "main.f", "net/http", "1e", "+",
            ]),
            0..24,
        )
    ) {
        let text = parts.concat();
        let _ = (Request::parse(&text), Condition::parse(&text), Condition::parse_duration(&text));
    }

    /// What is shown parses to the same.
    #[test]
    fn operands_come_back(text in "&?[*]{0,3}[a-c](\\.[a-c]|\\[[0-9]\\]|\\.\\(T\\)){0,4}") {
        let operand = Operand::parse(&text).unwrap();
        let again = Operand::parse(&operand.to_string()).unwrap();
        let kinds = |operand: &Operand| -> Vec<StepKind> {
            operand.steps.iter().map(|step| step.kind.clone()).collect()
        };
        prop_assert_eq!(&again.start, &operand.start);
        prop_assert_eq!(kinds(&again), kinds(&operand));
    }
}

#[test]
fn signatures() {
    let cases = [
        ("f(a int)", "f takes a:int@5"),
        ("f( a  int , b string )", "f takes a:int@7 b:string@15"),
        ("f(a, b int, c []byte)", "f takes a:int@8 b:int@8 c:[]byte@15"),
        ("f(a [4]byte)", "f takes a:[4]byte@5"),
        ("f(a ...any)", "f takes a:...any@5"),
        ("f(a <-chan int)", "f takes a:<-chan int@5"),
        ("f(m map[string]func(int, x.T) error)", "f takes m:map[string]func(int, x.T) error@5"),
        (
            "f(r *net/http.Request; r.Method, r.URL)",
            "f (r.Method, r.URL) takes r:*net/http.Request@5",
        ),
        ("f(r int;)", "f takes r:int@5"),
        ("f(n int) -> (code int, err error)", "f takes n:int@5 gives code:int@19 err:error@28"),
        ("f(n int; n) -> (err error; err)", "f (n) -> (err) takes n:int@5 gives err:error@21"),
        ("f -> err error", "f gives err:error@10"),
        ("f() -> (err error)", "f gives err:error@13"),
        ("a.(*T).M(t *a.T)", "a.(*T).M takes t:*a.T@12"),
        // These are values.
        ("f(a [0])", "f (a[0])"),
        ("f(a [0] [1])", "f (a[0][1])"),
        ("f(a [0].b)", "f (a[0].b)"),
        ("f(len (a), cap( b ))", "f (len(a), cap(b))"),
        ("f(a, b)", "f (a, b)"),
        ("f(a int, b)", "column 11: expected a type after 'b', found ')'"),
        (
            "f(a int, b.c)",
            "column 11: expected a name and a type, as in n int (expressions stand behind ';'), found '.'",
        ),
        (
            "f(a int, )",
            "column 10: expected a name and a type, as in n int (expressions stand behind ';'), found ')'",
        ),
        ("f(a int", "column 8: expected ')' after the parameters, found the end"),
        (
            "f -> a int, b int",
            "column 13: expected one result: several stand in parentheses, found 'b'",
        ),
    ];
    check(&cases, request);
}
