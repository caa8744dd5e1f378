//! The arguments of one call: checked against the tool's schema, completed with its defaults.
//!
//! `dispatch` asks for misfits before a call begins; the command reads the values when it runs. Pure.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind;
use longhaul_mcp::{
    clean,
    frame::Raw,
    scan::{self, Limits},
};
use serde_json::{Map, Value as Json};

use super::expand;
use crate::config::{Args, Tool, nearest};

/// The most misfits that one reply lists.
pub const MISFITS_MAX: usize = 20;
/// The most characters of one misfit.
const MISFIT_CHARS_MAX: usize = 300;

/// Checks arguments. The schema is compiled once; it refers to nothing outside itself.
pub struct Checker {
    tool: Tool,
    validator: jsonschema::Validator,
}

impl Checker {
    /// A checker for this tool.
    ///
    /// # Errors
    /// The tool's schema cannot be compiled, as a text. A configuration that was loaded has no such schema.
    pub fn new(tool: &Tool) -> Result<Checker, String> {
        let validator = jsonschema::options()
            .build(&tool.args.schema)
            .map_err(|error| error.to_string())?;
        Ok(Checker {
            tool: tool.clone(),
            validator,
        })
    }

    /// The values of a call's arguments, defaults included.
    ///
    /// # Errors
    /// One line for each argument that does not fit, for the model to mend (B-54).
    pub fn values(&self, arguments: &str) -> Result<Map<String, Json>, Vec<String>> {
        let scanned = scan::payload(arguments.as_bytes(), &Limits::default());
        let scanned = scanned.map_err(|error| vec![format!("the arguments cannot be read: {error}")])?;
        let given: Json = serde_json::from_str(scanned.text())
            .map_err(|error| vec![format!("the arguments cannot be read: {error}")])?;
        let Json::Object(mut values) = given else {
            return Err(vec!["the arguments must be a JSON object".to_owned()]);
        };
        fill(&self.tool.args, &mut values);
        let misfits = self.misfits_of(&values);
        if misfits.is_empty() {
            Ok(values)
        } else {
            Err(misfits)
        }
    }

    fn misfits_of(&self, values: &Map<String, Json>) -> Vec<String> {
        let whole = Json::Object(values.clone());
        let mut misfits = Vec::new();
        for error in self.validator.iter_errors(&whole).take(MISFITS_MAX) {
            let named = matches!(
                error.kind(),
                ValidationErrorKind::AdditionalProperties { .. } | ValidationErrorKind::Required { .. }
            );
            // Those of the root are told by name below.
            if named && error.instance_path().as_str().is_empty() {
                continue;
            }
            let path = error.instance_path().to_string();
            let name = path.split('/').nth(1).unwrap_or_default();
            let secret = self.tool.args.params.get(name).is_some_and(|param| param.secret);
            // S23: the value of a secret is not repeated.
            let what = if secret {
                error.masked().to_string()
            } else {
                error.to_string()
            };
            let shown = path.trim_start_matches('/').replace('/', ".");
            misfits.push(clean(&format!("`{shown}`: {what}"), MISFIT_CHARS_MAX));
        }
        misfits.extend(self.names(values));
        if misfits.is_empty()
            && let Err(error) = expand::argv(&self.tool, values)
        {
            misfits.push(clean(&error.to_string(), MISFIT_CHARS_MAX));
        }
        misfits.truncate(MISFITS_MAX);
        misfits
    }

    /// Arguments that are missing, and names that the tool does not know.
    fn names(&self, values: &Map<String, Json>) -> Vec<String> {
        let schema = &self.tool.args.schema;
        let params: &BTreeMap<_, _> = &self.tool.args.params;
        let mut misfits = Vec::new();
        for name in schema
            .get("required")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
        {
            if !values.contains_key(name) {
                misfits.push(clean(&format!("`{name}` is missing"), MISFIT_CHARS_MAX));
            }
        }
        if schema.get("additionalProperties") == Some(&Json::Bool(false)) {
            for name in values.keys().filter(|name| !params.contains_key(*name)) {
                let nearest = nearest(name, params.keys().map(String::as_str));
                misfits.push(clean(
                    &format!("there is no argument `{name}`{nearest}"),
                    MISFIT_CHARS_MAX,
                ));
            }
        }
        misfits
    }

    /// The values of the secret arguments, to keep them out of errors (S23).
    pub(super) fn secrets(&self, values: &Map<String, Json>) -> Vec<String> {
        let secret = values
            .iter()
            .filter(|(name, _)| self.tool.args.params.get(*name).is_some_and(|p| p.secret));
        secret
            .filter_map(|(_, value)| value.as_str().map(str::to_owned))
            .collect()
    }
}

impl crate::catalog::Arguments for Checker {
    fn misfits(&self, arguments: &Raw) -> Vec<String> {
        self.values(arguments.text()).err().unwrap_or_default()
    }
}

fn fill(args: &Args, values: &mut Map<String, Json>) {
    for (name, param) in &args.params {
        if let Some(default) = &param.default
            && !values.contains_key(name)
        {
            values.insert(name.clone(), default.clone());
        }
    }
}
