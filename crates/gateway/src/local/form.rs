//! A form as a person fills it in: fields to show, and what was typed turned into JSON.
//!
//! The local page, the terminal's prompt and `longhaul run TOOL a=b` read a JSON Schema through this. It does
//! not judge answers: dispatch checks each one against its form (G-32). It only gives what was typed the type
//! that the schema asks for.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// The member's name.
    pub name: String,
    /// What people read above it: its title, else its name.
    pub label: String,
    /// A longer text.
    pub help: Option<String>,
    /// Must be filled in.
    pub required: bool,
    /// What is shown before anything was typed, one text for each value.
    pub default: Vec<String>,
    /// How it is filled in.
    pub kind: Kind,
}

/// How a field is filled in.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Any text.
    Text {
        /// The fewest characters.
        min: Option<u64>,
        /// The most characters.
        max: Option<u64>,
        /// `email`, `uri`, `date`, `date-time`.
        format: Option<String>,
    },
    /// A number.
    Number {
        /// Without a fraction.
        whole: bool,
        /// The least value, as the schema writes it.
        min: Option<String>,
        /// The largest value, as the schema writes it.
        max: Option<String>,
    },
    /// Yes or no.
    Check,
    /// One of these.
    One(Vec<Choice>),
    /// Several of these.
    Several(Vec<Choice>),
    /// A list of texts or numbers, one value each.
    List(Box<Kind>),
    /// Anything else: JSON, or a text when it is not JSON.
    Json,
}

/// One of the values to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The value.
    pub value: String,
    /// What people read.
    pub label: String,
}

/// Why what was typed does not become a value of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// Nothing was typed where something must be.
    #[error("`{0}` is needed")]
    Missing(String),
    /// Not a number.
    #[error("`{field}` is a number, and `{typed}` is none")]
    NotANumber {
        /// The field.
        field: String,
        /// What was typed.
        typed: String,
    },
    /// A fraction where none may be.
    #[error("`{field}` is a whole number, and `{typed}` is none")]
    NotWhole {
        /// The field.
        field: String,
        /// What was typed.
        typed: String,
    },
    /// Neither yes nor no.
    #[error("`{field}` is `true` or `false`, not `{typed}`")]
    NotYesOrNo {
        /// The field.
        field: String,
        /// What was typed.
        typed: String,
    },
    /// None of the choices.
    #[error("`{field}` is one of {choices}, not `{typed}`")]
    NotAChoice {
        /// The field.
        field: String,
        /// What was typed.
        typed: String,
        /// The choices, as a person reads them.
        choices: String,
    },
    /// More than one value for a field that takes one.
    #[error("`{0}` takes one value")]
    TooMany(String),
}

/// The fields of an object schema, in the order in which it was written. Empty when it is not one.
pub fn fields(schema: &RawValue) -> Vec<Field> {
    let Ok(schema) = serde_json::from_str::<Schema<'_>>(schema.get()) else {
        return Vec::new();
    };
    let properties = schema.properties.map(|ordered| ordered.0).unwrap_or_default();
    properties
        .into_iter()
        .filter_map(|(name, raw)| {
            let property = serde_json::from_str::<Value>(raw.get()).ok()?;
            let required = schema.required.contains(&name);
            Some(field(name, &property, required))
        })
        .collect()
}

impl Field {
    /// What was typed, as JSON of the field's type. `None` when nothing was typed and nothing needs to be.
    ///
    /// # Errors
    /// [`TypeError`], naming the field.
    pub fn read(&self, typed: &[String]) -> Result<Option<Box<RawValue>>, TypeError> {
        let blank = typed.iter().all(|text| text.is_empty());
        if blank && self.required && !matches!(self.kind, Kind::Check) {
            return Err(TypeError::Missing(self.name.clone()));
        }
        if typed.is_empty() || (blank && !matches!(self.kind, Kind::Text { .. } | Kind::Check)) {
            return Ok(None);
        }
        if blank && matches!(self.kind, Kind::Text { .. }) {
            return Ok(None);
        }
        let json = match &self.kind {
            Kind::Several(choices) => {
                let values: Result<Vec<String>, TypeError> =
                    typed.iter().map(|text| self.choice(choices, text)).collect();
                list(values?)
            }
            Kind::List(item) => {
                let values: Result<Vec<String>, TypeError> =
                    typed.iter().map(|text| self.one(item, text)).collect();
                list(values?)
            }
            Kind::Text { .. } | Kind::Number { .. } | Kind::Check | Kind::One(_) | Kind::Json => {
                match typed {
                    [text] => self.one(&self.kind, text)?,
                    _ => return Err(TypeError::TooMany(self.name.clone())),
                }
            }
        };
        Ok(Some(
            RawValue::from_string(json).expect("every branch above writes valid JSON"),
        ))
    }

    fn one(&self, kind: &Kind, text: &str) -> Result<String, TypeError> {
        let (field, typed) = (self.name.clone(), text.to_owned());
        match kind {
            Kind::Text { .. } => Ok(quoted(text)),
            Kind::Number { whole, .. } => {
                let text = text.trim();
                match serde_json::from_str::<serde_json::Number>(text) {
                    Err(_) => Err(TypeError::NotANumber { field, typed }),
                    Ok(number) if *whole && !is_whole(&number) => Err(TypeError::NotWhole { field, typed }),
                    // The text itself, so that a large number is not rounded.
                    Ok(_) => Ok(text.to_owned()),
                }
            }
            Kind::Check => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "y" | "on" | "1" => Ok("true".to_owned()),
                "false" | "no" | "n" | "off" | "0" | "" => Ok("false".to_owned()),
                _ => Err(TypeError::NotYesOrNo { field, typed }),
            },
            Kind::One(choices) | Kind::Several(choices) => self.choice(choices, text),
            Kind::List(_) | Kind::Json => match RawValue::from_string(text.trim().to_owned()) {
                Ok(raw) => Ok(raw.get().to_owned()),
                Err(_) => Ok(quoted(text)),
            },
        }
    }

    fn choice(&self, choices: &[Choice], text: &str) -> Result<String, TypeError> {
        let chosen = choices.iter().find(|choice| choice.value == text).or_else(|| {
            choices
                .iter()
                .find(|choice| choice.label.eq_ignore_ascii_case(text.trim()))
        });
        match chosen {
            Some(choice) => Ok(quoted(&choice.value)),
            None => Err(TypeError::NotAChoice {
                field: self.name.clone(),
                typed: text.to_owned(),
                choices: choices
                    .iter()
                    .map(|choice| format!("`{}`", choice.value))
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }
}

/// The members as one JSON object.
pub fn object(members: &BTreeMap<String, Box<RawValue>>) -> Box<RawValue> {
    serde_json::value::to_raw_value(members)
        .expect("a map with text keys and valid JSON values is valid JSON")
}

/// A text as JSON.
pub fn text_value(text: &str) -> Box<RawValue> {
    RawValue::from_string(quoted(text)).expect("a quoted text is valid JSON")
}

#[derive(Deserialize)]
struct Schema<'a> {
    #[serde(borrow, default)]
    properties: Option<Ordered<'a>>,
    #[serde(default)]
    required: Vec<String>,
}

/// The members of an object in the order in which they were written.
struct Ordered<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Ordered<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Ordered<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn field(name: String, property: &Value, required: bool) -> Field {
    let text = |member: &str| {
        property[member]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let default = match &property["default"] {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(shown).collect(),
        value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![shown(value)]
        }
    };
    Field {
        label: text("title").unwrap_or_else(|| name.clone()),
        help: text("description"),
        required,
        default,
        kind: kind(property),
        name,
    }
}

fn kind(property: &Value) -> Kind {
    if let Some(choices) = choices(property) {
        return Kind::One(choices);
    }
    let number = |member: &str| property[member].as_number().map(ToString::to_string);
    match property["type"].as_str() {
        Some("string") => Kind::Text {
            min: property["minLength"].as_u64(),
            max: property["maxLength"].as_u64(),
            format: property["format"].as_str().map(str::to_owned),
        },
        Some("integer") => Kind::Number {
            whole: true,
            min: number("minimum"),
            max: number("maximum"),
        },
        Some("number") => Kind::Number {
            whole: false,
            min: number("minimum"),
            max: number("maximum"),
        },
        Some("boolean") => Kind::Check,
        Some("array") => match choices(&property["items"]) {
            Some(choices) => Kind::Several(choices),
            None => Kind::List(Box::new(kind(&property["items"]))),
        },
        Some(_) | None => Kind::Json,
    }
}

/// The choices of an enumeration in any of its four spellings (A-71).
fn choices(property: &Value) -> Option<Vec<Choice>> {
    if let Some(values) = property["enum"].as_array() {
        let names = property["enumNames"].as_array();
        let choice = |(at, value): (usize, &Value)| {
            let value = value.as_str()?.to_owned();
            let label = names
                .and_then(|names| names.get(at)?.as_str())
                .unwrap_or(&value)
                .to_owned();
            Some(Choice { value, label })
        };
        return values.iter().enumerate().map(choice).collect();
    }
    let titled = property["oneOf"]
        .as_array()
        .or_else(|| property["anyOf"].as_array())?;
    let choice = |entry: &Value| {
        let value = entry["const"].as_str()?.to_owned();
        let label = entry["title"].as_str().unwrap_or(&value).to_owned();
        Some(Choice { value, label })
    };
    titled.iter().map(choice).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|value| value.fract() == 0.0)
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn list(values: Vec<String>) -> String {
    format!("[{}]", values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(schema: &str, name: &str, typed: &[&str]) -> Result<Option<String>, TypeError> {
        let schema = RawValue::from_string(schema.to_owned()).unwrap();
        let field = fields(&schema)
            .into_iter()
            .find(|field| field.name == name)
            .unwrap();
        let typed: Vec<String> = typed.iter().map(|&text| text.to_owned()).collect();
        field
            .read(&typed)
            .map(|value| value.map(|raw| raw.get().to_owned()))
    }

    #[test]
    fn what_is_typed_gets_the_type_that_the_schema_asks_for() {
        let schema = r#"{"type":"object","required":["n"],"properties":{
            "n":{"type":"integer"},"x":{"type":"number"},"s":{"type":"string"},"b":{"type":"boolean"},
            "e":{"type":"string","oneOf":[{"const":"eu","title":"Europe"}]},
            "m":{"type":"array","items":{"type":"string","enum":["a","b"]}},
            "l":{"type":"array","items":{"type":"integer"}},"o":{"type":"object"}}}"#;
        for (name, typed, expect) in [
            ("n", &["9007199254740993"][..], Some("9007199254740993")),
            ("x", &["1.50"], Some("1.50")),
            ("s", &["true"], Some("\"true\"")),
            ("s", &["a \"b\"\n"], Some(r#""a \"b\"\n""#)),
            ("s", &[""], None),
            ("b", &["yes"], Some("true")),
            ("b", &["off"], Some("false")),
            ("e", &["eu"], Some("\"eu\"")),
            ("e", &["europe"], Some("\"eu\"")),
            ("m", &["b", "a"], Some(r#"["b","a"]"#)),
            ("l", &["1", "2"], Some("[1,2]")),
            ("o", &[r#"{"k": 1}"#], Some(r#"{"k": 1}"#)),
        ] {
            assert_eq!(
                read(schema, name, typed).unwrap().as_deref(),
                expect,
                "{name} {typed:?}"
            );
        }
        for (name, typed, expect) in [
            ("n", &[""][..], "`n` is needed"),
            ("n", &["1.5"], "`n` is a whole number, and `1.5` is none"),
            ("n", &["1,2"], "`n` is a number, and `1,2` is none"),
            ("n", &["1", "2"], "`n` takes one value"),
            ("b", &["maybe"], "`b` is `true` or `false`, not `maybe`"),
            ("m", &["c"], "`m` is one of `a`, `b`, not `c`"),
        ] {
            assert_eq!(read(schema, name, typed).unwrap_err().to_string(), expect);
        }
    }

    #[test]
    fn fields_keep_the_order_in_which_they_were_written() {
        let schema = r#"{"properties":{"z":{"type":"string"},"a":{"type":"string","title":"First"}}}"#;
        let schema = RawValue::from_string(schema.to_owned()).unwrap();
        let labels: Vec<String> = fields(&schema).into_iter().map(|field| field.label).collect();
        assert_eq!(labels, ["z", "First"]);
    }
}
