//! `name=value` as typed after a tool or a task, made into JSON of the types that a schema asks for.

use std::collections::BTreeMap;

use longhaul_gateway::local::form::{self, Field, Kind};
use serde_json::value::RawValue;

use crate::exit::Failure;

/// The object that these arguments make.
///
/// `name=value` gives `value` the type that the schema asks for; repeated, it makes a list. `name:=JSON` takes
/// the JSON as it is. A value alone fills in the only field there is.
///
/// # Errors
/// What does not fit, and what would.
pub(crate) fn object(schema: &RawValue, typed: &[String]) -> Result<Box<RawValue>, Failure> {
    let fields = form::fields(schema);
    let mut members: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for text in typed {
        match text.split_once('=') {
            Some((name, value)) if name.ends_with(':') => {
                let name = name.trim_end_matches(':');
                let value = RawValue::from_string(value.to_owned())
                    .map_err(|error| Failure::usage(format!("`{name}` is no JSON: {error}")))?;
                members.insert(known(&fields, name)?.to_owned(), value);
            }
            Some((name, value)) if fields.len() != 1 || looks_like_a_name(name) => {
                values.entry(name).or_default().push(value.to_owned());
            }
            Some(_) | None => match fields.as_slice() {
                [only] => values.entry(&only.name).or_default().push(text.clone()),
                _ => {
                    return Err(Failure::usage(format!("`{text}` has no name: write NAME=VALUE"))
                        .fix(format!("names: {}", names(&fields))));
                }
            },
        }
    }
    for (name, values) in &values {
        known(&fields, name)?;
        let field = fields.iter().find(|field| field.name == *name);
        let value = match (field, values.as_slice()) {
            // `name=` is an empty text: on a command line nothing would be left out by writing it.
            (
                None
                | Some(Field {
                    kind: Kind::Text { .. },
                    ..
                }),
                [text],
            ) => Some(form::text_value(text)),
            (Some(field), values) => field
                .read(values)
                .map_err(|error| Failure::usage(error.to_string()))?,
            (None, _) => return Err(Failure::usage(format!("`{name}` takes one value"))),
        };
        if let Some(value) = value {
            members.insert((*name).to_owned(), value);
        }
    }
    for field in fields
        .iter()
        .filter(|field| field.required && field.default.is_empty())
    {
        if !members.contains_key(&field.name) {
            return Err(Failure::usage(format!("`{}` is needed", field.name)).fix(usage(&fields)));
        }
    }
    Ok(form::object(&members))
}

/// One line that shows how to write the arguments.
pub(crate) fn usage(fields: &[Field]) -> String {
    let words: Vec<String> = fields
        .iter()
        .map(|field| {
            let word = match &field.kind {
                Kind::Text { .. } => "TEXT",
                Kind::Number { .. } => "NUMBER",
                Kind::Check => "true|false",
                Kind::One(_) | Kind::Several(_) => "CHOICE",
                Kind::List(_) => "VALUE…",
                Kind::Json => "JSON",
            };
            match field.required {
                true => format!("{}={word}", field.name),
                false => format!("[{}={word}]", field.name),
            }
        })
        .collect();
    words.join(" ")
}

/// `path=x` names a field, also where there is one only; `a b=c` is a value.
fn looks_like_a_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn known<'a>(fields: &[Field], name: &'a str) -> Result<&'a str, Failure> {
    match fields.is_empty() || fields.iter().any(|field| field.name == name) {
        true => Ok(name),
        false => Err(Failure::usage(format!("nothing here is named `{name}`"))
            .fix(format!("names: {}", names(fields)))),
    }
}

fn names(fields: &[Field]) -> String {
    fields
        .iter()
        .map(|field| field.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","required":["path"],"properties":{
        "path":{"type":"string"},"depth":{"type":"integer"},"filter":{"type":"array","items":{"type":"string"}}}}"#;

    fn check(typed: &[&str], expect: Result<&str, &str>) {
        let schema = RawValue::from_string(SCHEMA.to_owned()).unwrap();
        let typed: Vec<String> = typed.iter().map(|&text| text.to_owned()).collect();
        let made = object(&schema, &typed);
        let made = made
            .as_ref()
            .map(|raw| raw.get())
            .map_err(|failure| failure.message.as_str());
        assert_eq!(made, expect, "{typed:?}");
    }

    #[test]
    fn what_is_typed_becomes_the_tools_arguments() {
        check(&["path=/a=b", "depth=3"], Ok(r#"{"depth":3,"path":"/a=b"}"#));
        check(&["path=", "filter=x"], Ok(r#"{"filter":["x"],"path":""}"#));
        check(
            &["path=a", "filter=x", "filter=y"],
            Ok(r#"{"filter":["x","y"],"path":"a"}"#),
        );
        check(
            &["path=a", "depth:=9007199254740993"],
            Ok(r#"{"depth":9007199254740993,"path":"a"}"#),
        );
        check(&["depth=3"], Err("`path` is needed"));
        check(&["path=a", "dept=3"], Err("nothing here is named `dept`"));
        check(
            &["path=a", "depth=x"],
            Err("`depth` is a number, and `x` is none"),
        );
        check(&["a"], Err("`a` has no name: write NAME=VALUE"));
    }
}
