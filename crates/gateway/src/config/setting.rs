//! A setting is declared once, with its text, type, default and first version; the reader, the reference page
//! and the JSON schema come from that declaration.
//!
//! Used by `sections` and `tool`. It never touches a file or the environment.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    node::{Data, Node, Table},
    problem::{At, Problems, suggestion, ticked},
};

/// One setting as the reference page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The section, such as `tasks` or `tools.NAME`.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// What a value may be, in words, with its unit.
    pub kind: &'static str,
    /// The default as it would be written without quotes; empty when there is none.
    pub default: &'static str,
    /// The least and the greatest value in the unit's base (milliseconds, bytes, a count), as they are written.
    pub range: Option<(String, String)>,
    /// The first version that knows the setting.
    pub since: &'static str,
    /// What it does.
    pub text: String,
    /// The JSON schema of a value.
    pub schema: serde_json::Value,
}

impl Setting {
    /// The environment variable that overrides it; `None` for settings of a tool, which only a file may hold (S6).
    pub fn variable(&self) -> Option<String> {
        let plain = !self.section.contains('.');
        plain.then(|| {
            format!(
                "LONGHAUL_{}__{}",
                self.section.to_uppercase(),
                self.key.to_uppercase()
            )
        })
    }
}

/// A type that a setting may have.
pub(super) trait Value: Sized {
    /// In words, with the unit.
    const KIND: &'static str;

    /// From a file. `Err` says what was expected; what a reader reported itself is `Err(None)`.
    fn read(node: &Node, problems: &mut Problems) -> Result<Self, Option<String>>;

    /// From text: a default, or an environment variable.
    fn from_text(text: &str) -> Result<Self, String>;

    /// The JSON schema of a value.
    fn schema() -> serde_json::Value;

    /// The size in the unit's base, where the type has one.
    fn magnitude(&self) -> Option<u64> {
        None
    }

    /// A magnitude as it is written.
    fn written(magnitude: u64) -> String {
        magnitude.to_string()
    }
}

/// The values of one table, taken key by key; what is left is unknown.
pub(super) struct Reader<'a> {
    section: &'a str,
    table: Table,
    known: Vec<&'static str>,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    pub(super) fn new(section: &'a str, table: Table, problems: &'a mut Problems) -> Reader<'a> {
        Reader {
            section,
            table,
            known: Vec::new(),
            problems,
        }
    }

    /// The value of `key`, or its default when it is absent or wrong.
    pub(super) fn take<T: Value>(
        &mut self,
        key: &'static str,
        default: &str,
        range: Option<(u64, u64)>,
    ) -> T {
        self.known.push(key);
        if let Some((_, node)) = self.table.remove(key) {
            match T::read(&node, self.problems) {
                Ok(value) => match out_of_range::<T>(&value, range) {
                    None => return value,
                    Some(text) => self.problems.add(&node.at, format!("`{key}` {text}")),
                },
                Err(Some(expected)) => {
                    self.problems.add(
                        &node.at,
                        format!("`{key}` must be {expected}, not {}", node.what()),
                    );
                }
                Err(None) => {}
            }
        }
        // Invariant: a declared default reads; a test reads all of them.
        T::from_text(default).expect("a declared default reads")
    }

    /// Reports every key that no setting took.
    pub(super) fn finish(self) {
        for (key, (at, _)) in &self.table {
            let nearest = suggestion(key, self.known.iter().copied());
            self.problems
                .add(at, format!("unknown key `{key}` in [{}]{nearest}", self.section));
        }
    }
}

/// The complaint about a value outside its range.
pub(super) fn out_of_range<T: Value>(value: &T, range: Option<(u64, u64)>) -> Option<String> {
    let (least, greatest) = range?;
    let magnitude = value.magnitude()?;
    if (least..=greatest).contains(&magnitude) {
        return None;
    }
    let (least, greatest) = (T::written(least), T::written(greatest));
    Some(format!(
        "must be from {least} to {greatest}, not {}",
        T::written(magnitude)
    ))
}

/// Declares a section: its struct, its settings and its reader.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident in $section:literal $(with $($(#[doc = $extra_text:literal])+ $extra:ident: $extra_type:ty,)+)? {
            $(
                $(#[doc = $text:literal])+
                $field:ident $(as $key:literal)?: $type:ty = $default:literal $(in $least:literal..=$greatest:literal)?, since $since:literal;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($($(#[doc = $extra_text])+ pub $extra: $extra_type,)+)?
            $( $(#[doc = $text])+ pub $field: $type, )*
        }

        impl $name {
            /// Every setting of this section, in the order of the reference.
            pub(super) fn settings() -> Vec<$crate::config::setting::Setting> {
                vec![$({
                    let range: &[(u64, u64)] = &[$(($least, $greatest))?];
                    $crate::config::setting::declared::<$type>(
                        $section, [$($key,)? stringify!($field)][0], $default, range.first().copied(), $since, concat!($($text),+),
                    )
                }),*]
            }

            pub(super) fn read(reader: &mut $crate::config::setting::Reader<'_>) -> $name {
                $name {
                    $($($extra: Default::default(),)+)?
                    $($field: {
                        let range: &[(u64, u64)] = &[$(($least, $greatest))?];
                        reader.take([$($key,)? stringify!($field)][0], $default, range.first().copied())
                    },)*
                }
            }
        }
    };
}
pub(super) use section;

/// The declaration of one setting.
pub(super) fn declared<T: Value>(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    range: Option<(u64, u64)>,
    since: &'static str,
    text: &str,
) -> Setting {
    Setting {
        section,
        key,
        kind: T::KIND,
        default,
        range: range.map(|(least, greatest)| (T::written(least), T::written(greatest))),
        since,
        text: text.trim().to_owned(),
        schema: T::schema(),
    }
}

/// Declares a setting that is one of a few words.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $word:literal, )+ } kind $kind:literal
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$vmeta])* $variant, )+ }

        impl $name {
            /// The word in the file.
            pub fn word(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }

        impl $crate::config::setting::Value for $name {
            const KIND: &'static str = $kind;

            fn read(
                node: &$crate::config::node::Node,
                _: &mut $crate::config::problem::Problems,
            ) -> Result<$name, Option<String>> {
                match &node.data {
                    $crate::config::node::Data::Text(text) => $name::from_text(text).map_err(Some),
                    _ => Err(Some($kind.to_owned())),
                }
            }

            fn from_text(text: &str) -> Result<$name, String> {
                match text {
                    $( $word => Ok($name::$variant), )+
                    _ => Err($kind.to_owned()),
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),+] })
            }
        }
    };
}
pub(super) use choice;

/// The types whose TOML form is text.
macro_rules! textual {
    ($($type:ty, $kind:literal, $parse:expr;)+) => {$(
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn read(node: &Node, _: &mut Problems) -> Result<$type, Option<String>> {
                let Data::Text(text) = &node.data else { return Err(Some($kind.to_owned())) };
                <$type>::from_text(text).map_err(Some)
            }

            fn from_text(text: &str) -> Result<$type, String> {
                let parse: fn(&str) -> Option<$type> = $parse;
                parse(text).ok_or_else(|| $kind.to_owned())
            }

            fn schema() -> serde_json::Value {
                json!({ "type": "string" })
            }
        }
    )+};
}

textual! {
    String, "text", |text| Some(text.to_owned());
    SocketAddr, "an address and port such as `127.0.0.1:7410`", |text| text.parse().ok();
}

impl Value for PathBuf {
    const KIND: &'static str = "a path; a relative one starts at the folder of the file that holds it";

    fn read(node: &Node, _: &mut Problems) -> Result<PathBuf, Option<String>> {
        let Data::Text(text) = &node.data else {
            return Err(Some("a path".to_owned()));
        };
        Ok(beside(&node.at, text))
    }

    fn from_text(text: &str) -> Result<PathBuf, String> {
        Ok(PathBuf::from(text))
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }
}

/// `path`, starting at the folder of the file that holds it.
pub(super) fn beside(at: &At, path: &str) -> PathBuf {
    Path::new(&*at.file).parent().unwrap_or(Path::new("")).join(path)
}

impl Value for bool {
    const KIND: &'static str = "`true` or `false`";

    fn read(node: &Node, _: &mut Problems) -> Result<bool, Option<String>> {
        let Data::Flag(flag) = &node.data else {
            return Err(Some(bool::KIND.to_owned()));
        };
        Ok(*flag)
    }

    fn from_text(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| bool::KIND.to_owned())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "boolean" })
    }
}

impl Value for u32 {
    const KIND: &'static str = "a whole number";

    fn read(node: &Node, _: &mut Problems) -> Result<u32, Option<String>> {
        let Data::Whole(number) = &node.data else {
            return Err(Some(u32::KIND.to_owned()));
        };
        u32::try_from(*number).map_err(|_| Some("a whole number from 0 to 4294967295".to_owned()))
    }

    fn from_text(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| u32::KIND.to_owned())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "integer", "minimum": 0 })
    }

    fn magnitude(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl Value for i32 {
    const KIND: &'static str = "a whole number";

    fn read(node: &Node, _: &mut Problems) -> Result<i32, Option<String>> {
        let Data::Whole(number) = &node.data else {
            return Err(Some(i32::KIND.to_owned()));
        };
        i32::try_from(*number).map_err(|_| Some(i32::KIND.to_owned()))
    }

    fn from_text(text: &str) -> Result<i32, String> {
        text.parse().map_err(|_| i32::KIND.to_owned())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "integer" })
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: &'static str = T::KIND;

    fn read(node: &Node, problems: &mut Problems) -> Result<Option<T>, Option<String>> {
        T::read(node, problems).map(Some)
    }

    fn from_text(text: &str) -> Result<Option<T>, String> {
        if text.is_empty() {
            Ok(None)
        } else {
            T::from_text(text).map(Some)
        }
    }

    fn schema() -> serde_json::Value {
        T::schema()
    }

    fn magnitude(&self) -> Option<u64> {
        self.as_ref().and_then(T::magnitude)
    }

    fn written(magnitude: u64) -> String {
        T::written(magnitude)
    }
}

impl<T: Value> Value for Vec<T> {
    const KIND: &'static str = "a list";

    fn read(node: &Node, problems: &mut Problems) -> Result<Vec<T>, Option<String>> {
        let Data::List(items) = &node.data else {
            return Err(Some(format!("a list, each item {}", T::KIND)));
        };
        let mut values = Vec::new();
        for item in items {
            match T::read(item, problems) {
                Ok(value) => values.push(value),
                Err(Some(expected)) => {
                    problems.add(
                        &item.at,
                        format!("each item must be {expected}, not {}", item.what()),
                    );
                }
                Err(None) => {}
            }
        }
        Ok(values)
    }

    fn from_text(text: &str) -> Result<Vec<T>, String> {
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(T::from_text)
            .collect()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl Value for BTreeMap<String, String> {
    const KIND: &'static str = "a table of texts";

    fn read(node: &Node, problems: &mut Problems) -> Result<BTreeMap<String, String>, Option<String>> {
        let Data::Table(table) = &node.data else {
            return Err(Some("a table of texts".to_owned()));
        };
        let mut map = BTreeMap::new();
        for (key, (_, node)) in table {
            match &node.data {
                Data::Text(text) => {
                    map.insert(key.clone(), text.clone());
                }
                Data::Whole(_)
                | Data::Number(_)
                | Data::Flag(_)
                | Data::Moment
                | Data::List(_)
                | Data::Table(_) => {
                    problems.add(&node.at, format!("`{key}` must be text, not {}", node.what()))
                }
            }
        }
        Ok(map)
    }

    fn from_text(text: &str) -> Result<BTreeMap<String, String>, String> {
        if text.is_empty() {
            Ok(BTreeMap::new())
        } else {
            Err("a table of texts".to_owned())
        }
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

/// ``one of `a`, `b` ``.
pub(super) fn one_of(words: &[&str]) -> String {
    format!("one of {}", ticked(words))
}
