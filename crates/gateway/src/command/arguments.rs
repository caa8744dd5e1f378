//! The arguments of one call: checked against the tool's schema, completed with its defaults.
//!
//! `dispatch` asks for misfits before a call begins; the command reads the values when it runs. Pure.
//!
//! Numbers keep the spelling of the caller, and integers become their decimal digits: no value passes through a
//! floating-point number.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind;
use longhaul_mcp::{
    clean,
    frame::{Obj, Raw},
    scan::{self, Limits},
};
use serde_json::{Map, Value as Json};

use super::expand;
use crate::config::{Args, Param, Tool, nearest};

/// The values of one call by name, each as it was written.
pub type Values = BTreeMap<String, Raw>;

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
    pub fn values(&self, arguments: &str) -> Result<Values, Vec<String>> {
        let scanned = scan::payload(arguments.as_bytes(), &Limits::default());
        let scanned = scanned.map_err(|error| vec![format!("the arguments cannot be read: {error}")])?;
        let unread = |error: serde_json::Error| vec![format!("the arguments cannot be read: {error}")];
        let given: Json = serde_json::from_str(scanned.text()).map_err(unread)?;
        let Json::Object(mut read) = given else {
            return Err(vec!["the arguments must be a JSON object".to_owned()]);
        };
        let members = Obj::parse(scanned.text()).map_err(unread)?.0;
        let mut written: Values = members
            .into_iter()
            .map(|(name, value)| (name.unescaped().into_owned(), value))
            .collect();
        fill(&self.tool.args, &mut read, &mut written);
        let mut misfits = self.misfits_of(&read);
        misfits.extend(self.digits(&mut written, misfits.len()));
        if misfits.is_empty()
            && let Err(error) = expand::argv(&self.tool, &written)
        {
            misfits.push(clean(&error.to_string(), MISFIT_CHARS_MAX));
        }
        misfits.truncate(MISFITS_MAX);
        if misfits.is_empty() {
            Ok(written)
        } else {
            Err(misfits)
        }
    }

    /// Turns integers into their decimal digits. The schema read them as floating-point numbers, so what is no
    /// integer may have passed it.
    fn digits(&self, written: &mut Values, known: usize) -> Vec<String> {
        let mut misfits = Vec::new();
        for (name, value) in written.iter_mut() {
            let Some(param) = self.tool.args.params.get(name).filter(|param| param.integers) else {
                continue;
            };
            match integers(value) {
                Ok(Some(digits)) => *value = digits,
                Ok(None) => {}
                // S23
                Err(_) if known == 0 && param.secret => {
                    misfits.push(format!("`{name}`: the value is not of type \"integer\""));
                }
                Err(text) if known == 0 => {
                    let text = format!("`{name}`: {text} is not of type \"integer\"");
                    misfits.push(clean(&text, MISFIT_CHARS_MAX));
                }
                Err(_) => {}
            }
        }
        misfits
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
    pub(super) fn secrets(&self, values: &Values) -> Vec<String> {
        let secret = values
            .iter()
            .filter(|(name, _)| self.tool.args.params.get(*name).is_some_and(|p| p.secret));
        secret.filter_map(|(_, value)| value.read().ok()).collect()
    }
}

impl crate::catalog::Arguments for Checker {
    fn misfits(&self, arguments: &Raw) -> Vec<String> {
        self.values(arguments.text()).err().unwrap_or_default()
    }
}

fn fill(args: &Args, read: &mut Map<String, Json>, written: &mut Values) {
    for (name, Param { default, .. }) in &args.params {
        if let Some(default) = default
            && !read.contains_key(name)
            && let Ok(raw) = Raw::of(default)
        {
            read.insert(name.clone(), default.clone());
            written.insert(name.clone(), raw);
        }
    }
}

/// The integer, or each of a list, in decimal digits; `None` when the value is of another type.
///
/// # Errors
/// The text of a number that is no integer.
fn integers(value: &Raw) -> Result<Option<Raw>, String> {
    let one = |text: &str| -> Result<String, String> {
        let number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if !number {
            return Ok(text.to_owned());
        }
        decimal(text).ok_or_else(|| text.to_owned())
    };
    let text = match value.read::<Vec<Raw>>() {
        Ok(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| one(item.text()))
                .collect::<Result<_, _>>()?;
            format!("[{}]", items.join(","))
        }
        Err(_) => one(value.text())?,
    };
    Ok(Raw::parse(&text).ok())
}

/// The longest integer, in digits: no finite double has more.
const DIGITS_MAX: i64 = 309;

/// The decimal digits of a number of the JSON grammar: `1e2` is `100`, `1.0` is `1`. `None` when it is no integer.
fn decimal(text: &str) -> Option<String> {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |text| ("-", text));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let zeros = significant.len() - significant.trim_end_matches('0').len();
    let core = significant.trim_end_matches('0');
    let exponent: i64 = exponent.trim_start_matches('+').parse().ok()?;
    let shift = exponent
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(i64::try_from(zeros).ok()?)?;
    let length = shift.checked_add(i64::try_from(core.len()).ok()?)?;
    if !(0..=DIGITS_MAX).contains(&shift) || length > DIGITS_MAX {
        return None;
    }
    Some(format!(
        "{sign}{core}{}",
        "0".repeat(usize::try_from(shift).ok()?)
    ))
}
