//! Forms: what a question asks, and whether an answer fits it.
//!
//! A form is read once, when a tool asks; only what the protocol allows gets in (flat fields of the primitive
//! kinds, nothing unknown). The same form later checks the answer, whatever channel it came through. Whether a
//! form asks for a secret is not judged here.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    clean,
    frame::{Obj, Raw},
};

mod field;
mod format;

pub use field::{BadField, Choice, Field, Kind, Misfit, Unfit};
pub use format::Format;

/// The most fields of one form.
pub const FIELDS_MAX: usize = 20;
/// The largest form, in bytes of its schema and message.
pub const FORM_BYTES_MAX: usize = 64 * 1024;
/// The longest message that is shown, in characters; what is longer is cut.
pub const MESSAGE_CHARS_MAX: usize = 4_000;

/// A form that may be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    message: String,
    fields: Vec<Field>,
}

/// Why a form is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadForm {
    /// More than [`FORM_BYTES_MAX`].
    #[error("form is larger than 64 KiB")]
    TooLarge,
    /// More than [`FIELDS_MAX`].
    #[error("form has more than 20 fields")]
    TooManyFields,
    /// The message is absent or no string.
    #[error("form has no `message`")]
    NoMessage,
    /// `requestedSchema` is no object schema with `properties`.
    #[error("`requestedSchema` must be {{\"type\":\"object\",\"properties\":…}}")]
    NotAnObjectSchema,
    /// `requestedSchema` has a member that a form has no use for.
    #[error("unknown keyword `{keyword}` in `requestedSchema`")]
    UnknownKeyword {
        /// The member.
        keyword: String,
    },
    /// `required` names no field, or is no list of names.
    #[error("`required` must list fields of the form")]
    BadRequired,
    /// A field is none of the kinds that a form may have.
    #[error("field `{field}`: {why}")]
    Field {
        /// The field, fit to be shown.
        field: String,
        /// What is wrong with it.
        why: BadField,
    },
}

/// What a person did with a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Accepted; with the fields, unless the question was a link.
    Accept(Option<Raw>),
    /// Declined.
    Decline,
    /// Dismissed without choosing.
    Dismiss,
}

/// An answer that fits its form.
#[derive(Clone, Debug, PartialEq)]
pub enum Fit {
    /// The fields as they were sent; every one is known and of its kind.
    Accept(Raw),
    /// Declined.
    Decline,
    /// Dismissed without choosing.
    Dismiss,
}

impl Form {
    /// Reads the `params` of an `elicitation/create` in form mode. Text that people will read is cleaned.
    ///
    /// # Errors
    /// The first thing that a form may not have.
    pub fn parse(params: &Raw) -> Result<Form, BadForm> {
        if params.text().len() > FORM_BYTES_MAX {
            return Err(BadForm::TooLarge);
        }
        let params: Obj = params.read().map_err(|_| BadForm::NotAnObjectSchema)?;
        let message: String = params.get("message").ok_or(BadForm::NoMessage)?;
        let schema = params.obj("requestedSchema").ok_or(BadForm::NotAnObjectSchema)?;
        for (name, _) in &schema.0 {
            if !["$schema", "type", "properties", "required"].contains(&&*name.unescaped()) {
                return Err(BadForm::UnknownKeyword {
                    keyword: clean(&name.unescaped(), 100),
                });
            }
        }
        let properties = schema.obj("properties").ok_or(BadForm::NotAnObjectSchema)?;
        if schema.get::<String>("type").as_deref() != Some("object") {
            return Err(BadForm::NotAnObjectSchema);
        }
        if properties.0.len() > FIELDS_MAX {
            return Err(BadForm::TooManyFields);
        }
        let required: Vec<String> = match schema.raw("required") {
            Some(names) => names.read().map_err(|_| BadForm::BadRequired)?,
            None => Vec::new(),
        };
        if required.iter().any(|name| properties.raw(name).is_none()) {
            return Err(BadForm::BadRequired);
        }
        let fields = properties.0.iter().map(|(name, schema)| {
            let name = name.unescaped().into_owned();
            let is_required = required.contains(&name);
            Field::parse(&name, is_required, schema).map_err(|why| BadForm::Field {
                field: clean(&name, 100),
                why,
            })
        });
        Ok(Form {
            message: clean(&message, MESSAGE_CHARS_MAX),
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    /// What is asked, in words, fit to be shown.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The fields, in the order in which they were written.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The form as the `params` of an `elicitation/create`: what a client is sent. The text is the cleaned one.
    pub fn params(&self) -> Raw {
        let mut properties = Obj::default();
        self.fields
            .iter()
            .for_each(|field| properties.set(&field.name, &field.schema()));
        let required: Vec<&str> = self
            .fields
            .iter()
            .filter(|field| field.is_required)
            .map(|field| &*field.name)
            .collect();
        let mut schema = Obj::default();
        schema.set("type", "object");
        schema.set("properties", &properties.to_raw());
        if !required.is_empty() {
            schema.set("required", &required);
        }
        let mut params = Obj::default();
        params.set("mode", "form");
        params.set("message", &self.message);
        params.set("requestedSchema", &schema.to_raw());
        params.to_raw()
    }

    /// Whether an answer fits. A decline and a dismissal fit every form.
    ///
    /// # Errors
    /// The first field that does not fit, and why.
    pub fn check(&self, answer: &Answer) -> Result<Fit, Misfit> {
        let content = match answer {
            Answer::Decline => return Ok(Fit::Decline),
            Answer::Dismiss => return Ok(Fit::Dismiss),
            Answer::Accept(None) if self.fields.is_empty() => Raw::of(&Map::new()).ok(),
            Answer::Accept(content) => content.clone(),
        };
        let misfit = |field: &str, why| Misfit {
            field: clean(field, 100),
            why,
        };
        let Some(content) = content else {
            return Err(misfit("content", Unfit::Missing));
        };
        let values: Map<String, Value> = content
            .read()
            .map_err(|_| misfit("content", Unfit::MustBe("an object")))?;
        for field in &self.fields {
            match values.get(&field.name) {
                Some(value) => field.check(value).map_err(|why| misfit(&field.name, why))?,
                None if field.is_required => return Err(misfit(&field.name, Unfit::Missing)),
                None => {}
            }
        }
        match values
            .keys()
            .find(|name| self.fields.iter().all(|field| field.name != **name))
        {
            Some(stranger) => Err(misfit(stranger, Unfit::Unknown)),
            None => Ok(Fit::Accept(content)),
        }
    }
}

impl Answer {
    /// Reads an `ElicitResult`.
    ///
    /// # Errors
    /// `action` is none of the three words, or `content` is no object.
    pub fn parse(result: &Raw) -> Result<Answer, Misfit> {
        let misfit = |field: &str, why| Misfit {
            field: field.to_owned(),
            why,
        };
        let result: Obj = result
            .read()
            .map_err(|_| misfit("action", Unfit::MustBe("accept, decline or cancel")))?;
        match result.get::<String>("action").as_deref() {
            Some("accept") => match result.raw("content") {
                Some(content) if !content.text().starts_with('{') => {
                    Err(misfit("content", Unfit::MustBe("an object")))
                }
                content => Ok(Answer::Accept(content.cloned())),
            },
            Some("decline") => Ok(Answer::Decline),
            Some("cancel") => Ok(Answer::Dismiss),
            Some(_) | None => Err(misfit("action", Unfit::MustBe("accept, decline or cancel"))),
        }
    }
}
