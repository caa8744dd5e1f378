//! The arguments of a tool: declared in short form, or as a JSON Schema in a file.
//!
//! Read by `tool`; the schema is what `tools/list` shows and what `command` checks each call against.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Map, Value as Json, json};

use super::{
    node::{Data, Node, Table},
    problem::{At, Problems, suggestion},
    setting::{Value, beside, one_of},
    template::is_name,
};

/// The declared arguments.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// The input schema; its root is an object (B-54).
    pub schema: Json,
    /// Each argument by name.
    pub params: BTreeMap<String, Param>,
    /// The file that holds the schema, when it is not declared here.
    pub(super) file: Option<(At, PathBuf)>,
}

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// What its values are.
    pub kind: Kind,
    /// A call without it is refused.
    pub required: bool,
    /// The value when a call leaves it out.
    pub default: Option<Json>,
    /// Goes to the program by stdin only: never in its arguments, a log or an error (S23).
    pub secret: bool,
    /// A value may begin with `-` even where the program would read it as an option.
    pub dash: bool,
    /// Its numbers, or those of its list, are integers.
    pub integers: bool,
    pub(super) at: Option<At>,
}

/// What the values of an argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list of texts or numbers.
    List,
    /// Anything else: usable on stdin only.
    Other,
}

const TYPES: &[&str] = &["string", "integer", "number", "boolean"];

impl Value for Args {
    const KIND: &'static str = "a table of arguments, or the path of a JSON Schema";

    fn read(node: &Node, problems: &mut Problems) -> Result<Args, Option<String>> {
        match &node.data {
            Data::Text(path) => {
                let file = Some((node.at.clone(), beside(&node.at, path)));
                Ok(Args {
                    file,
                    ..Args::default()
                })
            }
            Data::Table(table) => Ok(declared(table, problems)),
            Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Moment | Data::List(_) => {
                Err(Some(Args::KIND.to_owned()))
            }
        }
    }

    fn from_text(_: &str) -> Result<Args, String> {
        Ok(Args {
            schema: object(Map::new(), Vec::new()),
            ..Args::default()
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "string" },
            { "type": "object", "additionalProperties": { "anyOf": [{ "type": "string" }, long_form()] } },
        ] })
    }
}

fn long_form() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["type"],
        "properties": {
            "type": { "type": "string" }, "description": { "type": "string" }, "default": {},
            "enum": { "type": "array" }, "minimum": { "type": "number" }, "maximum": { "type": "number" },
            "pattern": { "type": "string" }, "secret": { "type": "boolean" }, "dash": { "type": "boolean" },
        },
    })
}

fn object(properties: Map<String, Json>, required: Vec<Json>) -> Json {
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn declared(table: &Table, problems: &mut Problems) -> Args {
    let (mut properties, mut required, mut params) = (Map::new(), Vec::new(), BTreeMap::new());
    for (name, (at, node)) in table {
        if !is_name(name) {
            problems.add(
                at,
                format!("`{name}` cannot name an argument: use letters, digits, `_` and `-`"),
            );
            continue;
        }
        let Some((mut param, property)) = one(name, node, problems) else {
            continue;
        };
        param.at = Some(at.clone());
        if param.required {
            required.push(name.as_str().into());
        }
        properties.insert(name.clone(), property);
        params.insert(name.clone(), param);
    }
    Args {
        schema: object(properties, required),
        params,
        file: None,
    }
}

fn one(name: &str, node: &Node, problems: &mut Problems) -> Option<(Param, Json)> {
    match &node.data {
        Data::Text(short) => {
            let (kind, default) = match short.split_once('=') {
                Some((kind, default)) => (kind.trim(), Some(default.trim())),
                None => (short.trim(), None),
            };
            let (mut param, mut property) = typed(name, kind, &node.at, problems)?;
            if let Some(text) = default {
                let value = if param.kind == Kind::Text {
                    Json::String(text.trim_matches('"').to_owned())
                } else {
                    serde_json::from_str(text).unwrap_or(Json::String(text.to_owned()))
                };
                property["default"] = value.clone();
                (param.default, param.required) = (Some(value), false);
                let place = |_: &str| node.at.clone();
                fits_itself(name, &place, &property, problems);
            }
            Some((param, property))
        }
        Data::Table(table) => long(name, node, table, problems),
        Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Moment | Data::List(_) => {
            problems.add(
                &node.at,
                format!("argument `{name}` must be a type such as \"string\" or {{ type = \"string\", … }}, not {}", node.what()),
            );
            None
        }
    }
}

/// `string`, `string?`, `string[]`, ….
fn typed(name: &str, text: &str, at: &At, problems: &mut Problems) -> Option<(Param, Json)> {
    let (base, optional) = text.strip_suffix('?').map_or((text, false), |base| (base, true));
    let (base, list) = base.strip_suffix("[]").map_or((base, false), |base| (base, true));
    let kind = match base {
        "string" => Kind::Text,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => {
            let nearest = suggestion(base, TYPES.iter().copied());
            problems.add(
                at,
                format!("argument `{name}` has the unknown type `{text}`{nearest}"),
            );
            return None;
        }
    };
    let property = if list {
        json!({ "type": "array", "items": { "type": base } })
    } else {
        json!({ "type": base })
    };
    let kind = if list { Kind::List } else { kind };
    // An absent list is an empty list, and an absent boolean false.
    let required = !optional && !list && kind != Kind::Boolean;
    Some((
        Param {
            kind,
            required,
            default: None,
            secret: false,
            dash: false,
            integers: base == "integer",
            at: None,
        },
        property,
    ))
}

fn long(name: &str, node: &Node, table: &Table, problems: &mut Problems) -> Option<(Param, Json)> {
    let Some((
        _,
        Node {
            at,
            data: Data::Text(kind),
        },
    )) = table.get("type")
    else {
        problems.add(
            &node.at,
            format!("argument `{name}` needs a `type`, {}", one_of(TYPES)),
        );
        return None;
    };
    let (mut param, mut property) = typed(name, kind, at, problems)?;
    for (key, (at, value)) in table {
        let json = value.json().unwrap_or(Json::Null);
        match (key.as_str(), &value.data) {
            ("type", _) => {}
            ("secret", Data::Flag(flag)) => param.secret = *flag,
            ("dash", Data::Flag(flag)) => param.dash = *flag,
            ("default", _) => {
                property["default"] = json.clone();
                (param.default, param.required) = (Some(json), false);
            }
            ("enum", Data::List(_)) if param.kind == Kind::List => property["items"]["enum"] = json,
            ("description" | "pattern", Data::Text(_))
            | ("enum", Data::List(_))
            | ("minimum" | "maximum", Data::Whole(_) | Data::Number(_)) => property[key.as_str()] = json,
            ("secret" | "dash" | "description" | "pattern" | "enum" | "minimum" | "maximum", _) => {
                problems.add(
                    &value.at,
                    format!("`{key}` of argument `{name}` cannot be {}", value.what()),
                );
            }
            (unknown, _) => {
                let known = [
                    "type",
                    "secret",
                    "dash",
                    "default",
                    "enum",
                    "description",
                    "pattern",
                    "minimum",
                    "maximum",
                ];
                let nearest = suggestion(unknown, known.into_iter());
                problems.add(
                    at,
                    format!("unknown key `{unknown}` of argument `{name}`{nearest}"),
                );
            }
        }
    }
    if param.secret {
        property["writeOnly"] = true.into();
    }
    let place = |key: &str| {
        table
            .get(key)
            .map_or_else(|| node.at.clone(), |(_, value)| value.at.clone())
    };
    fits_itself(name, &place, &property, problems);
    Some((param, property))
}

/// Reports a constraint that nothing can fit, and a default or a listed value that does not fit the others.
fn fits_itself(name: &str, place: &dyn Fn(&str) -> At, property: &Json, problems: &mut Problems) {
    if let Some(pattern) = property.get("pattern") {
        let alone = json!({ "pattern": pattern });
        if jsonschema::options().build(&alone).is_err() {
            problems.add(
                &place("pattern"),
                format!("the `pattern` of argument `{name}` is not a regular expression"),
            );
            return;
        }
    }
    let bound = |key: &str| property.get(key).and_then(Json::as_f64);
    if let (Some(least), Some(greatest)) = (bound("minimum"), bound("maximum"))
        && least > greatest
    {
        problems.add(
            &place("minimum"),
            format!("argument `{name}` has a `minimum` ({least}) above its `maximum` ({greatest})"),
        );
        return;
    }
    let validator = match jsonschema::options().build(property) {
        Ok(validator) => validator,
        Err(error) => {
            problems.add(
                &place("type"),
                format!("argument `{name}` cannot be checked: {error}"),
            );
            return;
        }
    };
    if let Some(default) = property
        .get("default")
        .filter(|default| !validator.is_valid(default))
    {
        problems.add(
            &place("default"),
            format!("the default `{default}` of argument `{name}` does not fit its own type"),
        );
    }
    let listed = property.get("enum").and_then(Json::as_array);
    for value in listed
        .into_iter()
        .flatten()
        .filter(|value| !validator.is_valid(value))
    {
        problems.add(
            &place("enum"),
            format!("the value `{value}` in the `enum` of argument `{name}` does not fit its own type"),
        );
    }
}

/// The arguments that a JSON Schema declares.
pub(super) fn of_schema(schema: Json, at: &At, problems: &mut Problems) -> Args {
    if schema.get("type") != Some(&json!("object")) {
        problems.add(at, "the schema's root must have `\"type\": \"object\"`");
    }
    let required = schema
        .get("required")
        .and_then(Json::as_array)
        .cloned()
        .unwrap_or_default();
    let mut params = BTreeMap::new();
    for (name, property) in schema
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
    {
        let kind = match property.get("type").and_then(Json::as_str) {
            Some("string") => Kind::Text,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("boolean") => Kind::Boolean,
            Some("array") => Kind::List,
            Some(_) | None => Kind::Other,
        };
        let flag = |key: &str| property.get(key).and_then(Json::as_bool).unwrap_or(false);
        let param = Param {
            kind,
            required: required.contains(&json!(name)),
            default: property.get("default").cloned(),
            secret: flag("writeOnly"),
            dash: flag("x-dash"),
            integers: property["type"] == "integer" || property["items"]["type"] == "integer",
            at: Some(at.clone()),
        };
        // A property with references is checked with the whole schema only.
        if let (Some(default), Ok(validator)) = (&param.default, jsonschema::options().build(property))
            && !validator.is_valid(default)
        {
            problems.add(
                at,
                format!("the default `{default}` of argument `{name}` does not fit its own schema"),
            );
        }
        params.insert(name.clone(), param);
    }
    Args {
        schema,
        params,
        file: None,
    }
}

/// Reports a schema that cannot be compiled, or that points outside itself.
pub(super) fn check_schema(what: &str, schema: &Json, at: &At, problems: &mut Problems) {
    if let Some(reference) = outside(schema, 0) {
        problems.add(
            at,
            format!("{what} refers to `{reference}`; only references that begin with `#` are followed"),
        );
        return;
    }
    if let Err(error) = jsonschema::options().build(schema) {
        problems.add(at, format!("{what} is not a valid JSON Schema: {error}"));
    }
}

fn outside(schema: &Json, depth: usize) -> Option<String> {
    const DEPTH_MAX: usize = 64;
    if depth > DEPTH_MAX {
        return None;
    }
    match schema {
        Json::Object(members) => members.iter().find_map(|(key, value)| match value {
            Json::String(target) if key == "$ref" || key == "$dynamicRef" => {
                (!target.starts_with('#')).then(|| target.clone())
            }
            Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)
            | Json::Object(_) => outside(value, depth + 1),
        }),
        Json::Array(items) => items.iter().find_map(|item| outside(item, depth + 1)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    }
}
