//! One field of a form: its kind, its bounds, and whether a value fits it. Called by the form only.

use serde_json::{Map, Number, Value, json};
use thiserror::Error;

use super::format::Format;
use crate::{clean, frame::Raw};

/// The longest title and description that are shown, in characters.
const TEXT_CHARS_MAX: usize = 1_000;
/// The most choices of one field.
const CHOICES_MAX: usize = 500;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The member of the answer.
    pub name: String,
    /// For people, cleaned.
    pub title: Option<String>,
    /// For people, cleaned.
    pub description: Option<String>,
    /// The answer must have it.
    pub is_required: bool,
    /// What it holds.
    pub kind: Kind,
    /// What it holds when nothing else is said; fits the field.
    pub default: Option<Value>,
    /// Its choices have their titles in `enumNames`, as the tool wrote it.
    pub has_names: bool,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Text.
    Text {
        /// The fewest characters.
        chars_min: Option<u64>,
        /// The most characters.
        chars_max: Option<u64>,
        /// A form the text must have.
        format: Option<Format>,
    },
    /// A number.
    Number {
        /// Without a fraction.
        is_integer: bool,
        /// The least.
        minimum: Option<Number>,
        /// The greatest.
        maximum: Option<Number>,
    },
    /// Yes or no.
    Boolean,
    /// One of some choices.
    Choice(Vec<Choice>),
    /// Several of some choices.
    Choices {
        /// What there is to choose from.
        among: Vec<Choice>,
        /// The fewest.
        items_min: Option<u64>,
        /// The most.
        items_max: Option<u64>,
    },
}

/// One thing to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What the answer says.
    pub value: String,
    /// What people read, cleaned; the value itself when absent.
    pub title: Option<String>,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadField {
    /// It is none of the kinds that a form may have.
    #[error("must be a string, a number, a boolean or a choice of strings")]
    NotPrimitive,
    /// It has a keyword that its kind does not have.
    #[error("unknown keyword `{keyword}`")]
    UnknownKeyword {
        /// The keyword, fit to be shown.
        keyword: String,
    },
    /// A keyword has a value of the wrong type.
    #[error("`{keyword}` has the wrong type")]
    BadKeyword {
        /// The keyword.
        keyword: &'static str,
    },
    /// No choice, or more than 500.
    #[error("must have 1 to 500 choices")]
    BadChoices,
    /// The default does not fit the field itself.
    #[error("`default` does not fit")]
    BadDefault,
}

/// An answer that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{field}` {why}")]
pub struct Misfit {
    /// The field, fit to be shown.
    pub field: String,
    /// Why.
    pub why: Unfit,
}

/// Why a value does not fit its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// It is required and absent.
    #[error("is required")]
    Missing,
    /// The form has no such field.
    #[error("is no field of the form")]
    Unknown,
    /// It has another type or form.
    #[error("must be {0}")]
    MustBe(&'static str),
    /// It has too few or too many characters.
    #[error("must have {min} to {max} characters")]
    Length {
        /// The fewest.
        min: u64,
        /// The most, in words.
        max: String,
    },
    /// It is too small or too great.
    #[error("must be between {min} and {max}")]
    Range {
        /// The least, in words.
        min: String,
        /// The greatest, in words.
        max: String,
    },
    /// It is none of the choices.
    #[error("must be one of the choices")]
    NotAChoice,
    /// Too few or too many choices, or one twice.
    #[error("must be {min} to {max} of the choices, each once")]
    Count {
        /// The fewest.
        min: u64,
        /// The most, in words.
        max: String,
    },
}

impl Field {
    pub(super) fn parse(name: &str, is_required: bool, schema: &Raw) -> Result<Field, BadField> {
        let schema: Map<String, Value> = schema.read().map_err(|_| BadField::NotPrimitive)?;
        let reader = Reader { schema: &schema };
        let kind = reader.kind()?;
        let field = Field {
            name: name.to_owned(),
            title: reader.shown("title")?,
            description: reader.shown("description")?,
            is_required,
            default: schema.get("default").cloned(),
            has_names: schema.contains_key("enumNames"),
            kind,
        };
        match &field.default {
            Some(default) if field.check(default).is_err() => Err(BadField::BadDefault),
            Some(_) | None => Ok(field),
        }
    }

    /// Whether `value` fits.
    pub(super) fn check(&self, value: &Value) -> Result<(), Unfit> {
        match &self.kind {
            Kind::Text {
                chars_min,
                chars_max,
                format,
            } => {
                let text = value.as_str().ok_or(Unfit::MustBe("a string"))?;
                let (min, max) = (chars_min.unwrap_or(0), chars_max.unwrap_or(u64::MAX));
                if !(min..=max).contains(&(text.chars().count() as u64)) {
                    return Err(Unfit::Length {
                        min,
                        max: in_words(chars_max.as_ref()),
                    });
                }
                format.map_or(Ok(()), |format| format.check(text))
            }
            Kind::Number {
                is_integer,
                minimum,
                maximum,
            } => {
                let number = value.as_number().ok_or(Unfit::MustBe("a number"))?;
                if *is_integer && !is_whole(number) {
                    return Err(Unfit::MustBe("an integer"));
                }
                let is_below = minimum.as_ref().is_some_and(|minimum| is_less(number, minimum));
                let is_above = maximum.as_ref().is_some_and(|maximum| is_less(maximum, number));
                if is_below || is_above {
                    let (min, max) = (in_words(minimum.as_ref()), in_words(maximum.as_ref()));
                    return Err(Unfit::Range { min, max });
                }
                Ok(())
            }
            Kind::Boolean => value.as_bool().map(|_| ()).ok_or(Unfit::MustBe("true or false")),
            Kind::Choice(choices) => {
                let text = value.as_str().ok_or(Unfit::MustBe("a string"))?;
                if has(choices, text) {
                    Ok(())
                } else {
                    Err(Unfit::NotAChoice)
                }
            }
            Kind::Choices {
                among,
                items_min,
                items_max,
            } => check_choices(value, among, *items_min, *items_max),
        }
    }

    /// The field's schema, for a client. Titled choices are spelt as they came.
    pub(super) fn schema(&self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                out.insert(name.to_owned(), value);
            }
        };
        put("title", self.title.as_deref().map(Value::from));
        put("description", self.description.as_deref().map(Value::from));
        match &self.kind {
            Kind::Text {
                chars_min,
                chars_max,
                format,
            } => {
                put("type", Some(json!("string")));
                put("minLength", chars_min.map(Value::from));
                put("maxLength", chars_max.map(Value::from));
                put("format", format.map(|format| json!(format.word())));
            }
            Kind::Number {
                is_integer,
                minimum,
                maximum,
            } => {
                put(
                    "type",
                    Some(json!(if *is_integer { "integer" } else { "number" })),
                );
                put("minimum", minimum.clone().map(Value::Number));
                put("maximum", maximum.clone().map(Value::Number));
            }
            Kind::Boolean => put("type", Some(json!("boolean"))),
            Kind::Choice(choices) if self.has_names => {
                let values: Vec<&str> = choices.iter().map(|choice| &*choice.value).collect();
                let names: Vec<&str> = choices
                    .iter()
                    .filter_map(|choice| choice.title.as_deref())
                    .collect();
                put("type", Some(json!("string")));
                put("enum", Some(json!(values)));
                put("enumNames", Some(json!(names)));
            }
            Kind::Choice(choices) => {
                put("type", Some(json!("string")));
                let (keyword, list) = choice_list(choices, "oneOf");
                put(keyword, Some(list));
            }
            Kind::Choices {
                among,
                items_min,
                items_max,
            } => {
                put("type", Some(json!("array")));
                put("minItems", items_min.map(Value::from));
                put("maxItems", items_max.map(Value::from));
                let (keyword, list) = choice_list(among, "anyOf");
                let items = if keyword == "enum" {
                    json!({ "type": "string", "enum": list })
                } else {
                    json!({ keyword: list })
                };
                put("items", Some(items));
            }
        }
        put("default", self.default.clone());
        Value::Object(out)
    }
}

fn check_choices(
    value: &Value,
    among: &[Choice],
    items_min: Option<u64>,
    items_max: Option<u64>,
) -> Result<(), Unfit> {
    let items = value.as_array().ok_or(Unfit::MustBe("a list of strings"))?;
    let mut seen: Vec<&str> = Vec::new();
    let (min, max) = (items_min.unwrap_or(0), items_max.unwrap_or(u64::MAX));
    let count = || Unfit::Count {
        min,
        max: items_max.map_or_else(|| "all".to_owned(), |max| max.to_string()),
    };
    if !(min..=max).contains(&(items.len() as u64)) || items.len() > among.len() {
        return Err(count());
    }
    for item in items {
        let text = item.as_str().ok_or(Unfit::MustBe("a list of strings"))?;
        if !has(among, text) {
            return Err(Unfit::NotAChoice);
        }
        if seen.contains(&text) {
            return Err(count());
        }
        seen.push(text);
    }
    Ok(())
}

fn has(choices: &[Choice], value: &str) -> bool {
    choices.iter().any(|choice| choice.value == value)
}

/// `enum` when no choice has a title, else `titled`.
fn choice_list(choices: &[Choice], titled: &'static str) -> (&'static str, Value) {
    if choices.iter().all(|choice| choice.title.is_none()) {
        return ("enum", choices.iter().map(|choice| json!(choice.value)).collect());
    }
    let title = |choice: &Choice| choice.title.clone().unwrap_or_else(|| choice.value.clone());
    (
        titled,
        choices
            .iter()
            .map(|choice| json!({ "const": choice.value, "title": title(choice) }))
            .collect(),
    )
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Compares as integers where both are, so that no digit is lost beyond 2^53.
fn is_less(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64() < b.as_f64(),
    }
}

fn in_words(bound: Option<&impl ToString>) -> String {
    bound.map_or_else(|| "any".to_owned(), ToString::to_string)
}

/// Reads a field's schema. Every kind names all the keywords it has; anything else is refused, because a keyword
/// that nobody checks is a promise that nobody keeps.
struct Reader<'a> {
    schema: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn kind(&self) -> Result<Kind, BadField> {
        let has = |keyword| self.schema.contains_key(keyword);
        match self.schema.get("type").and_then(Value::as_str) {
            Some("string") if has("enum") => {
                self.only(&["enum", "enumNames"])?;
                Ok(Kind::Choice(self.plain_choices()?))
            }
            Some("string") if has("oneOf") => {
                self.only(&["oneOf"])?;
                Ok(Kind::Choice(titled_choices(&self.schema["oneOf"])?))
            }
            Some("string") => {
                self.only(&["minLength", "maxLength", "format"])?;
                let format = self.schema.get("format").map(|word| {
                    let named = word.as_str().and_then(Format::named);
                    named.ok_or(BadField::BadKeyword { keyword: "format" })
                });
                Ok(Kind::Text {
                    chars_min: self.count("minLength")?,
                    chars_max: self.count("maxLength")?,
                    format: format.transpose()?,
                })
            }
            Some(word @ ("number" | "integer")) => {
                self.only(&["minimum", "maximum"])?;
                Ok(Kind::Number {
                    is_integer: word == "integer",
                    minimum: self.number("minimum")?,
                    maximum: self.number("maximum")?,
                })
            }
            Some("boolean") => {
                self.only(&[])?;
                Ok(Kind::Boolean)
            }
            Some("array") => {
                self.only(&["items", "minItems", "maxItems"])?;
                Ok(Kind::Choices {
                    among: self.items()?,
                    items_min: self.count("minItems")?,
                    items_max: self.count("maxItems")?,
                })
            }
            Some(_) | None => Err(BadField::NotPrimitive),
        }
    }

    fn only(&self, keywords: &[&str]) -> Result<(), BadField> {
        let known = ["type", "title", "description", "default"];
        match self
            .schema
            .keys()
            .find(|key| !known.contains(&key.as_str()) && !keywords.contains(&key.as_str()))
        {
            Some(keyword) => Err(BadField::UnknownKeyword {
                keyword: clean(keyword, 100),
            }),
            None => Ok(()),
        }
    }

    fn shown(&self, keyword: &'static str) -> Result<Option<String>, BadField> {
        match self.schema.get(keyword) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(clean(text, TEXT_CHARS_MAX))),
            Some(_) => Err(BadField::BadKeyword { keyword }),
        }
    }

    fn count(&self, keyword: &'static str) -> Result<Option<u64>, BadField> {
        match self.schema.get(keyword) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(BadField::BadKeyword { keyword }),
        }
    }

    fn number(&self, keyword: &'static str) -> Result<Option<Number>, BadField> {
        match self.schema.get(keyword) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.clone())),
            Some(_) => Err(BadField::BadKeyword { keyword }),
        }
    }

    /// `enum`, with the older `enumNames` beside it accepted (A.9).
    fn plain_choices(&self) -> Result<Vec<Choice>, BadField> {
        let values = strings(&self.schema["enum"], "enum")?;
        let titles = match self.schema.get("enumNames") {
            Some(names) => strings(names, "enumNames")?,
            None => Vec::new(),
        };
        let choices = values.into_iter().enumerate().map(|(index, value)| Choice {
            value,
            title: titles.get(index).map(|title| clean(title, TEXT_CHARS_MAX)),
        });
        bounded(choices.collect())
    }

    fn items(&self) -> Result<Vec<Choice>, BadField> {
        let items = self
            .schema
            .get("items")
            .and_then(Value::as_object)
            .ok_or(BadField::NotPrimitive)?;
        let only = |keywords: &[&str]| match items.keys().find(|key| !keywords.contains(&key.as_str())) {
            Some(keyword) => Err(BadField::UnknownKeyword {
                keyword: clean(keyword, 100),
            }),
            None => Ok(()),
        };
        if let Some(titled) = items.get("anyOf") {
            only(&["anyOf"])?;
            return titled_choices(titled);
        }
        only(&["type", "enum"])?;
        let values = items.get("enum").ok_or(BadField::NotPrimitive)?;
        let choices = strings(values, "enum")?
            .into_iter()
            .map(|value| Choice { value, title: None });
        bounded(choices.collect())
    }
}

fn titled_choices(list: &Value) -> Result<Vec<Choice>, BadField> {
    let list = list.as_array().ok_or(BadField::BadChoices)?;
    let choice = |entry: &Value| {
        let value = entry.get("const")?.as_str()?.to_owned();
        let title = clean(entry.get("title")?.as_str()?, TEXT_CHARS_MAX);
        (entry.as_object()?.len() == 2).then_some(Choice {
            value,
            title: Some(title),
        })
    };
    bounded(
        list.iter()
            .map(choice)
            .collect::<Option<_>>()
            .ok_or(BadField::BadChoices)?,
    )
}

fn bounded(choices: Vec<Choice>) -> Result<Vec<Choice>, BadField> {
    if (1..=CHOICES_MAX).contains(&choices.len()) {
        Ok(choices)
    } else {
        Err(BadField::BadChoices)
    }
}

fn strings(list: &Value, keyword: &'static str) -> Result<Vec<String>, BadField> {
    let texts = list
        .as_array()
        .map(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    texts.flatten().ok_or(BadField::BadKeyword { keyword })
}
