//! E-1: what two readers could disagree about is refused before anything parses it.

use longhaul_mcp::scan::{self, BadText, Limits, Refused, Rule};

fn refused(bytes: &[u8]) -> Refused {
    scan::frame(bytes, &Limits::default()).expect_err("refused")
}

#[track_caller]
fn check(text: &str, rule: Rule, offset: usize) {
    assert_eq!(refused(text.as_bytes()), Refused { rule, offset }, "{text}");
}

#[track_caller]
fn passes(text: &str) {
    scan::frame(text.as_bytes(), &Limits::default()).unwrap_or_else(|refused| panic!("{refused}: {text}"));
}

#[test]
fn deep_input_is_refused_without_recursion() {
    for levels in [65, 100_000, 1_900_000] {
        let arrays = "[".repeat(levels);
        assert_eq!(
            refused(arrays.as_bytes()),
            Refused {
                rule: Rule::TooDeep,
                offset: 64
            }
        );
        let objects = "{\"a\":".repeat(levels);
        assert_eq!(
            refused(objects.as_bytes()),
            Refused {
                rule: Rule::TooDeep,
                offset: 64 * 5
            }
        );
    }
    passes(&format!("{}{}", "[".repeat(64), "]".repeat(64)));
}

#[test]
fn values_of_every_kind_are_counted() {
    let limits = Limits {
        values_max: 5,
        ..Limits::default()
    };
    assert!(scan::frame(br#"{"a":[1,"x",null]}"#, &limits).is_ok());
    let more = scan::frame(br#"{"a":[1,"x",null,true]}"#, &limits);
    assert_eq!(
        more,
        Err(Refused {
            rule: Rule::TooManyValues,
            offset: 17
        })
    );
    let items = format!("[{}1]", "1,".repeat(99_999));
    assert_eq!(refused(items.as_bytes()).rule, Rule::TooManyValues);
}

#[test]
fn a_number_has_at_most_a_thousand_characters() {
    passes(&"9".repeat(1_000));
    check(&"9".repeat(1_001), Rule::NumberTooLong, 0);
    check(&format!("[1,-{}]", "9".repeat(1_000)), Rule::NumberTooLong, 3);
}

#[test]
fn bytes_that_are_no_utf8_are_refused() {
    assert_eq!(
        refused(b"{\"a\":\"\xff\"}"),
        Refused {
            rule: Rule::NotUtf8,
            offset: 6
        }
    );
    assert_eq!(refused(b"\"\xed\xa0\x80\"").rule, Rule::NotUtf8);
    assert_eq!(refused(b"\"\xc0\x80\"").rule, Rule::NotUtf8);
}

#[test]
fn lone_surrogates_are_refused() {
    let lone = Rule::Text(BadText::LoneSurrogate);
    check(r#"{"a":"\ud800"}"#, lone, 6);
    check(r#"{"a":"x\udc00"}"#, lone, 7);
    check(r#"["\ud800\u0041"]"#, lone, 2);
    check(r#"["\ud800\ud800"]"#, lone, 2);
    check(r#"{"\udfff":1}"#, lone, 2);
    passes(r#"["\ud83d\ude00"]"#);
}

#[test]
fn u0000_is_refused_however_it_is_written() {
    check(r#"{"a":"\u0000"}"#, Rule::Text(BadText::Nul), 6);
    check(r#"{"\u0000":1}"#, Rule::Text(BadText::Nul), 2);
    check("{\"a\":\"\0\"}", Rule::Text(BadText::Nul), 6);
}

#[test]
fn equal_names_are_refused_at_any_depth() {
    check(r#"{"a":1,"a":2}"#, Rule::DuplicateMember, 7);
    check(
        r#"{"params":{"arguments":{"x":[{"env":1,"env":2}]}}}"#,
        Rule::DuplicateMember,
        38,
    );
    passes(r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#);
}

#[test]
fn names_are_compared_without_their_escapes() {
    check(r#"{"env":1,"\u0065nv":2}"#, Rule::DuplicateMember, 9);
    check(r#"{"a\/b":1,"a/b":2}"#, Rule::DuplicateMember, 10);
    check(r#"{"😀":1,"\ud83d\ude00":2}"#, Rule::DuplicateMember, 10);
    // Composed and decomposed are two names: nothing here folds Unicode forms.
    passes("{\"\u{e9}\":1,\"e\u{301}\":2}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn many_names_of_one_object_are_no_quadratic_work() {
    let members: Vec<String> = (0..99_000).map(|n| format!("\"m{n}\":0")).collect();
    let started = std::time::Instant::now();
    passes(&format!("{{{}}}", members.join(",")));
    assert!(started.elapsed().as_secs() < 5);
}

#[test]
fn envelope_members_in_another_case_are_refused() {
    for name in [
        "Method",
        "JSONRPC",
        "iD",
        "Params",
        "RESULT",
        "Error",
        "re\u{17f}ult",
        "para\\u006dS",
    ] {
        let text = format!("{{\"{name}\":1}}");
        check(&text, Rule::WrongCase, 1);
    }
    for name in [
        "Name",
        "ARGUMENTS",
        "_Meta",
        "taskID",
        "InputResponses",
        "tas\u{212a}",
        "requeststate",
    ] {
        check(&format!("{{\"params\":{{\"{name}\":1}}}}"), Rule::WrongCase, 11);
    }
}

#[test]
fn arguments_and_vendor_members_keep_any_case() {
    passes(r#"{"method":"m","X-Id":1,"params":{"Vendor":1,"arguments":{"Name":1,"METHOD":2,"name":3}}}"#);
    passes(r#"{"params":{"_meta":{"Name":1,"TaskId":2}}}"#);
    let payload = scan::payload(br#"{"Method":1,"params":{"Name":2}}"#, &Limits::default());
    assert!(payload.is_ok(), "a payload has no envelope");
}

#[test]
fn what_is_no_json_is_refused_at_its_byte() {
    let syntax = Rule::Text(BadText::Syntax);
    for (text, offset) in [
        ("", 0),
        ("  ", 2),
        ("{", 1),
        ("[1,]", 3),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("{\"a\" 1}", 5),
        ("[1}", 2),
        ("1 2", 2),
        ("01", 1),
        ("-", 1),
        ("1.", 2),
        ("1e+", 3),
        ("+1", 0),
        (".5", 0),
        ("NaN", 0),
        ("tru", 0),
        ("\"a", 2),
        ("\"\u{1}\"", 1),
        ("\"\\x\"", 2),
        ("\"\\u00g0\"", 2),
        ("\u{feff}{}", 0),
        ("//x\n1", 0),
        ("'a'", 0),
    ] {
        check(text, syntax, offset);
    }
}

#[test]
fn every_text_that_passes_is_json_for_the_parser_behind() {
    for text in [
        "0",
        "-0.0e-0",
        "\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"",
        " [ { \"a\" : [ ] } , true , false , null ] ",
    ] {
        passes(text);
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
    }
}

proptest::proptest! {
    /// The scan accepts nothing that the parser behind refuses, and refuses no JSON that it has no rule against.
    #[test]
    fn the_scan_and_the_parser_agree(text in "[\\[\\]{}\",:0-9a-c\\\\u.eE+\\- tfn]{0,24}") {
        let scanned = scan::payload(text.as_bytes(), &Limits::default());
        let parsed = serde_json::from_str::<serde_json::Value>(&text);
        match scanned {
            Ok(_) => proptest::prop_assert!(parsed.is_ok() || text.contains(['e', 'E']), "{text}"),
            Err(Refused { rule: Rule::Text(BadText::Syntax), .. }) => {
                proptest::prop_assert!(parsed.is_err(), "{text}");
            }
            Err(_) => {}
        }
    }
}
