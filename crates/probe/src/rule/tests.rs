use super::*;
use proptest::prelude::*;

/// The rule in normal form: pattern, then one line a parameter.
fn show(text: &str) -> String {
    match Rule::parse(text) {
        Err(error) => error.to_string(),
        Ok(rule) => {
            let params = rule.params.map(|params| {
                let list: Vec<String> = params
                    .iter()
                    .map(|param| format!("{}={}:{}", param.name, param.expr, param.ty))
                    .collect();
                format!(" ({})", list.join(", "))
            });
            format!("{}{}", rule.pattern, params.unwrap_or_default())
        }
    }
}

#[test]
fn the_documented_rule() {
    assert_eq!(
        show(
            "main.(*Student).String(s.name=(*+0(%ax)):c64, s.name.len=(+8(%ax)):s64, \
             s.age=(+16(%ax)):s64)"
        ),
        "main.(*Student).String (s.name=*+0(%ax):c64, s.name.len=+8(%ax):s64, s.age=+16(%ax):s64)"
    );
}

#[test]
fn what_is_pattern_and_what_is_list() {
    for (text, expected) in [
        ("main.*", "main.*"),
        ("main.(*T).M", "main.(*T).M"),
        ("main.(*T)", "main.(*T)"),
        ("main.(*", "main.(*"),
        ("main.(*T*", "main.(*T*"),
        ("main.(*T).M?", "main.(*T).M?"),
        ("main.f()", "main.f ()"),
        ("main.f ( ) ", "main.f ()"),
        ("main.(*T).M()", "main.(*T).M ()"),
        ("main.f(a=%ax:s64)", "main.f (a=%ax:s64)"),
        ("main.*(a=((%rbx)):u8)", "main.* (a=%bx:u8)"),
        ("main.Map[go.shape.int](a=%ax:s64)", "main.Map[go.shape.int] (a=%ax:s64)"),
        (
            "main.F[struct { A int \"k=(v\" }](a=%cx:s8)",
            "main.F[struct { A int \"k=(v\" }] (a=%cx:s8)",
        ),
        ("main.a,main.b", "main.a,main.b"),
        ("/main.(add|sub)/", "/main.(add|sub)/"),
        ("/a()/", "/a()/"),
        (" /^main.(a=b|c)$/ ( x = %r15 : f64 )", "/^main.(a=b|c)$/ (x=%r15:f64)"),
        ("/net/http/()", "/net/http/ ()"),
    ] {
        assert_eq!(show(text), expected, "{text}");
    }
}

#[test]
fn expressions() {
    let expr = |text: &str| show(&format!("f(a={text}:u64)"));
    for (text, expected) in [
        ("%ax", "f (a=%ax:u64)"),
        ("%eax", "f (a=%ax:u64)"),
        ("%r8", "f (a=%r8:u64)"),
        ("%r9d", "f (a=%r9:u64)"),
        ("( % rsp )", "f (a=%sp:u64)"),
        ("*(%di)", "f (a=*+0(%di):u64)"),
        ("+0(%si)", "f (a=+0(%si):u64)"),
        ("-8(%bp)", "f (a=-8(%bp):u64)"),
        ("*-0x10(%dx)", "f (a=*-16(%dx):u64)"),
        (" + 8 ( * + 16 ( ( % ax ) ) ) ", "f (a=+8(*+16(%ax)):u64)"),
        ("+0x7fffffffffffffff(%ax)", "f (a=+9223372036854775807(%ax):u64)"),
    ] {
        assert_eq!(expr(text), expected, "{text}");
    }
    let nested = |n: usize| format!("f(a={}%ax{}:u8)", "(".repeat(n), ")".repeat(n));
    assert_eq!(show(&nested(MAX_STEPS)), "f (a=%ax:u8)");
    assert_eq!(
        show(&nested(MAX_STEPS + 1)),
        "column 37: expected at most 32 nested parentheses, found '('"
    );
}

#[test]
fn types() {
    let known =
        ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64", "c8", "c24", "c4096"];
    for name in known {
        assert_eq!(RuleType::by_name(name).map(|ty| ty.to_string()).as_deref(), Some(name));
    }
    for name in
        ["", "s", "s7", "s128", "f16", "c0", "c7", "c4104", "c65544", "x8", "s+8", "s08", "é8"]
    {
        assert_eq!(RuleType::by_name(name), None, "{name}");
    }
}

#[test]
fn errors_have_a_column_and_an_expectation() {
    let types = "a type (s8 s16 s32 s64 u8 u16 u32 u64 f32 f64 c8…c4096)";
    let registers = "a register (ax bx cx dx si di bp sp r8…r15 x0…x14)";
    let general = "a general register: vector registers hold no addresses";
    for (text, expected) in [
        ("", "column 1: empty pattern; name a function, as in 'main.*'".to_owned()),
        ("(a=%ax:s64)", "column 1: empty pattern; name a function, as in 'main.*'".to_owned()),
        ("main.f(", "column 8: expected ')', found the end".to_owned()),
        ("main.*(", "column 8: expected ')', found the end".to_owned()),
        ("main.(*T", "column 9: expected ')', found the end".to_owned()),
        ("main.(*T).M(a", "column 14: expected ')', found the end".to_owned()),
        ("main.f a=%ax:s64", "column 9: expected '(' before the arguments, found '='".to_owned()),
        (
            "main.f(a=%ax:s64",
            "column 17: expected ',' or ')' after the argument, found the end".to_owned(),
        ),
        (
            "main.f(a=%ax:s64) x",
            "column 19: expected the end after the argument list, found 'x'".to_owned(),
        ),
        (
            "main.f(a=%ax:s64))",
            "column 18: expected the end after the argument list, found ')'".to_owned(),
        ),
        ("main.f(a=%ax:s64,)", "column 18: expected an argument's name, found ')'".to_owned()),
        ("main.f(=%ax:s64)", "column 8: expected an argument's name, found '='".to_owned()),
        (
            "main.f(a=ax:s64)",
            "column 10: expected '%register', '*', '+', '-' or '(', found 'a'".to_owned(),
        ),
        (
            "main.f(a=8(%ax):s64)",
            "column 10: expected '%register', '*', '+', '-' or '(', found '8'".to_owned(),
        ),
        ("main.f(a=%ay:s64)", format!("column 11: expected {registers}, found 'ay'")),
        ("main.f(a=%r16:s64)", format!("column 11: expected {registers}, found 'r16'")),
        ("main.f(a=%x15:f64)", format!("column 11: expected {registers}, found 'x15'")),
        ("main.f(a=(+8(%x1)):f64)", format!("column 15: expected {general}, found 'x1'")),
        ("main.f(a=%:s64)", format!("column 11: expected {registers}, found ':'")),
        ("main.f(a=%ax:s65)", format!("column 14: expected {types}, found 's65'")),
        ("main.f(a=%ax)", "column 13: expected ':', found ')'".to_owned()),
        ("main.é(é=%ax:)", format!("column 14: expected {types}, found ')'")),
        (
            "main.f(a=*%ax:s64)",
            "column 11: expected '+', '-' or '(' after '*', found '%'".to_owned(),
        ),
        ("main.f(a=+8%ax:s64)", "column 12: expected '(' after the offset, found '%'".to_owned()),
        (
            "main.f(a=+(%ax):s64)",
            "column 11: expected an offset (decimal or 0x hex, at most 63 bits), found '('"
                .to_owned(),
        ),
        (
            "main.f(a=+0xg(%ax):s64)",
            "column 11: expected an offset (decimal or 0x hex, at most 63 bits), found '0xg'"
                .to_owned(),
        ),
        ("main.f(a=(+8(%ax:s64)", "column 17: expected ')', found ':'".to_owned()),
        (
            "/a/ b",
            "column 5: expected '(' or the end after the regular expression, found 'b'".to_owned(),
        ),
        ("/a", "column 3: regular expression without a closing '/'".to_owned()),
        ("/a/(b)", "column 6: expected '=', found ')'".to_owned()),
    ] {
        assert_eq!(show(text), expected, "{text}");
    }
}

proptest! {
    /// What `Display` writes parses back to the same expression.
    #[test]
    fn expressions_survive_their_text(
        register in (0u8..16).prop_map(Register),
        steps in prop::collection::vec(
            prop_oneof![
                (-5000i64..5000).prop_map(Step::Offset),
                (-5000i64..5000).prop_map(Step::Load),
            ],
            0..MAX_STEPS,
        ),
    ) {
        let expr = Expr { register, steps };
        let rule = Rule::parse(&format!("main.f(a={expr}:s8)")).unwrap();
        prop_assert_eq!(&rule.params.unwrap()[0].expr, &expr);
    }

    #[test]
    fn no_text_panics(text in "[a/(=%ax:s8*+,)\\[é\\] 0]{0,40}") {
        let _ = Rule::parse(&text);
    }
}
