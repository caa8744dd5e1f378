//! E-3 and E-4: one canonical form, numbers by their text.

use longhaul_mcp::{canon, frame::Raw};
use proptest::{prelude::*, sample::Index};
use serde_json::Value;

fn form(text: &str) -> String {
    canon::form(&Raw::parse(text).expect("JSON")).expect("canonical")
}

fn digest(text: &str) -> canon::Digest {
    canon::digest(&Raw::parse(text).expect("JSON")).expect("canonical")
}

#[test]
fn numbers_are_equal_by_their_decimal_value() {
    for (equal, expect) in [
        (&["1", "1.0", "1e0", "10e-1", "0.1E+1", "100e-2"][..], "1"),
        (&["0", "-0", "0.0", "0e99", "-0.0e-5"], "0"),
        (&["100", "1e2", "1E+02", "0.001e5"], "1e2"),
        (&["-1.50", "-15e-1", "-0.15e1"], "-15e-1"),
        (
            &[
                "1e999999999999999999999999999999999999999999",
                "10e999999999999999999999999999999999999999998",
            ],
            "1e999999999999999999999999999999999999999999",
        ),
        (
            &[
                "1e-1000000000000000000000000000000000000000000",
                "0.1e-999999999999999999999999999999999999999999",
            ],
            "1e-1000000000000000000000000000000000000000000",
        ),
        (
            &["10e9999999999999999999999999999999999999999999"],
            "1e10000000000000000000000000000000000000000000",
        ),
    ] {
        for text in equal {
            assert_eq!(form(text), expect, "{text}");
        }
    }
}

#[test]
fn no_digit_is_lost_beyond_two_to_the_53() {
    assert_ne!(digest("9007199254740992"), digest("9007199254740993"));
    assert_ne!(
        digest("{\"account\":12345678901234567123}"),
        digest("{\"account\":12345678901234567124}")
    );
    assert_ne!(digest("0.1"), digest("0.1000000000000000055511151231257827"));
    assert_eq!(
        digest("123456789012345678901234567890"),
        digest("12345678901234567890123456789.0e1")
    );
}

#[test]
fn members_are_sorted_by_the_bytes_of_their_names() {
    assert_eq!(
        form(r#"{"b":1,"a":{"z":[],"y":{}},"A":null}"#),
        r#"{"A":null,"a":{"y":{},"z":[]},"b":1}"#
    );
    // UTF-16 order would put the second first.
    assert_eq!(
        form("{\"\u{1f600}\":1,\"\u{ff5e}\":2}"),
        "{\"\u{ff5e}\":2,\"\u{1f600}\":1}"
    );
}

#[test]
fn strings_have_the_shortest_escapes() {
    assert_eq!(
        form(r#""\u0041\/\u00e9\u001f\u000a\ud83d\ude00\"\\""#),
        "\"A/é\\u001f\\n😀\\\"\\\\\""
    );
}

#[test]
fn arrays_keep_their_order() {
    assert_ne!(digest("[1,2]"), digest("[2,1]"));
    assert_eq!(form(" [ 1 , [ ] , \"x\" ] "), "[1,[],\"x\"]");
}

#[test]
fn values_of_different_kinds_never_meet() {
    let texts = [
        "1",
        "\"1\"",
        "[1]",
        "{\"1\":1}",
        "true",
        "\"true\"",
        "null",
        "\"\"",
        "{}",
        "[]",
        "[[]]",
        "[\"\"]",
    ];
    for (index, one) in texts.iter().enumerate() {
        for other in &texts[index + 1..] {
            assert_ne!(digest(one), digest(other), "{one} {other}");
        }
    }
}

/// The form is stable for ever: stored digests are compared with new ones.
#[test]
fn the_digest_of_a_known_value_never_changes() {
    let hex: String = digest(r#"{"path":"/srv/app","depth":3.0}"#)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(
        hex,
        "279ae28eaa2eb152db27dcbe82dc6660dc0a8c8887ccae25781ac806e46dccf9"
    );
}

#[test]
fn a_number_that_is_no_finite_double_is_named_by_its_path() {
    let value = Raw::parse(r#"{"a":[1,{"b/c":[0,-1e400]}],"z":1e400}"#).expect("JSON");
    assert_eq!(
        canon::check_finite(&value).expect_err("refused").path,
        "/a/1/b~1c/1"
    );
    let fine = Raw::parse(r#"{"a":[1e308,-1e308,1e-400,123456789012345678901234567890]}"#).expect("JSON");
    assert!(canon::check_finite(&fine).is_ok());
    let root = Raw::parse("1e999").expect("JSON");
    assert_eq!(canon::check_finite(&root).expect_err("refused").path, "");
}

#[test]
fn deep_values_need_no_stack() {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(form(&deep).len(), 40_000);
}

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-zé\"\\\\\n\u{1f600}/]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-cé\"\\\\]{0,3}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// `value` in another spelling: other order, escapes, white space and numerals.
fn respelled(value: &Value, turns: &[Index]) -> String {
    let turn = |n: usize| turns.first().map_or(0, |index| index.index(n));
    match value {
        Value::Null | Value::Bool(_) => format!(" {value} "),
        Value::Number(number) => match turn(3) {
            0 => format!("{number}.000"),
            1 => format!("{number}0e-1"),
            _ => number.to_string(),
        },
        Value::String(text) => {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            format!("\"{units}\"")
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| respelled(item, turns)).collect();
            format!("[ {} ]", items.join(" ,\n"))
        }
        Value::Object(members) => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(name, value)| {
                    format!(
                        "{} : {}",
                        respelled(&Value::from(name.as_str()), turns),
                        respelled(value, turns)
                    )
                })
                .collect();
            if !members.is_empty() {
                let by = turn(members.len());
                members.rotate_left(by);
            }
            format!("{{\t{}}}", members.join(","))
        }
    }
}

proptest! {
    #[test]
    fn equal_values_have_equal_digests(value in any_json(), turns in prop::collection::vec(any::<Index>(), 1..3)) {
        prop_assert_eq!(digest(&value.to_string()), digest(&respelled(&value, &turns)));
    }

    #[test]
    fn different_values_have_different_forms(one in any_json(), other in any_json()) {
        prop_assert_eq!(one == other, form(&one.to_string()) == form(&other.to_string()));
    }

    #[test]
    fn the_form_is_its_own_form(value in any_json()) {
        let once = form(&value.to_string());
        prop_assert_eq!(&form(&once), &once);
    }
}
