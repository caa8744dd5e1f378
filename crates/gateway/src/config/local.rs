//! What the user of this machine sees besides the page.

use super::{
    node::{Data, Node},
    problem::Problems,
    setting::{Value, section},
};

section! {
    /// What the user of this machine is told.
    Local in "local" {
        /// Who tells the user that a question waits which no client shows: `auto` (the desktop, where there is one),
        /// `never`, or a program as a list of texts, which is given two more arguments: a title, and who asks with how
        /// to answer. A notice never holds the question itself. Only a file may name a program.
        notify: Notify = "auto", since "0.1.0";
    }
}

/// Who tells the user of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The desktop, where there is one.
    Auto,
    /// Nobody.
    Never,
    /// This program, with its first arguments.
    Program(Vec<String>),
}

/// What may stand there.
const KIND: &str = "`auto`, `never`, or a program as a list of texts";

impl Value for Notify {
    const KIND: &'static str = KIND;

    fn read(node: &Node, problems: &mut Problems) -> Result<Notify, Option<String>> {
        match &node.data {
            Data::Text(text) => Notify::from_text(text).map_err(Some),
            Data::List(_) => match Vec::<String>::read(node, problems)? {
                words if words.first().is_some_and(|program| !program.is_empty()) => {
                    Ok(Notify::Program(words))
                }
                _ => Err(Some(KIND.to_owned())),
            },
            Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Moment | Data::Table(_) => {
                Err(Some(KIND.to_owned()))
            }
        }
    }

    /// A program stands in a file, never in a variable (S6).
    fn from_text(text: &str) -> Result<Notify, String> {
        match text {
            "auto" => Ok(Notify::Auto),
            "never" => Ok(Notify::Never),
            _ => Err(KIND.to_owned()),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [
            { "enum": ["auto", "never"] },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
        ] })
    }
}
