//! Whether the settings of a tool fit together: each placeholder an argument, each argument used, the output
//! described once.
//!
//! `tool` calls it when a section has been read. It reads no file.

use longhaul_mcp::{frame::Raw, header};

use super::{Output, Stdin, Tool};
use crate::config::{
    args::{Kind, Param},
    node::{Data, Node, Table},
    problem::{At, Problems, suggestion},
    script,
    template::{self, Item},
};

/// The largest compiled `progress` expression, in bytes.
pub const PROGRESS_REGEX_BYTES_MAX: usize = 1 << 20;

pub(super) fn command(tool: &Tool, stdin: &At, problems: &mut Problems) {
    if let Some((at, program)) = tool.command.items.first() {
        match program.literal().as_deref() {
            None => problems.add(
                at,
                "the program must be written out: a value may not choose what runs",
            ),
            Some("") => problems.add(at, "the program is empty"),
            Some(_) => {}
        }
    }
    if !tool.allow_program_text {
        let values_in = script::has_values(&tool.stdin()).then_some(stdin);
        script::check(&tool.command, &|name| listed(tool, name), values_in, problems);
    }
    for (at, item) in &tool.command.items {
        check_item(tool, at, item, false, problems);
    }
}

/// Whether the configuration lists every value of an argument.
fn listed(tool: &Tool, name: &str) -> bool {
    let property = &tool.args.schema["properties"][name];
    property.get("enum").is_some() || property["items"].get("enum").is_some()
}

/// Text that no program can be given.
pub(super) fn plain(tool: &Tool, table: &Table, problems: &mut Problems) {
    let mut nul = |at: &At, what: &str, text: &str| {
        if text.contains('\0') {
            problems.add(
                at,
                format!("{what} holds a NUL character, which no program can be given"),
            );
        }
    };
    for (at, item) in &tool.command.items {
        for text in item.texts() {
            nul(at, "`command`", text);
        }
    }
    if let Some((_, node)) = table.get("cwd") {
        nul(
            &node.at,
            "`cwd`",
            &tool
                .cwd
                .as_ref()
                .map_or_else(String::new, |cwd| cwd.display().to_string()),
        );
    }
    let variables = match table.get("env") {
        Some((
            _,
            Node {
                data: Data::Table(variables),
                ..
            },
        )) => Some(variables),
        Some(_) | None => None,
    };
    for (name, (at, node)) in variables.into_iter().flatten() {
        nul(at, &format!("the variable `{}`", name.escape_default()), name);
        if let Data::Text(value) = &node.data {
            nul(
                &node.at,
                &format!("the variable `{}`", name.escape_default()),
                value,
            );
        }
    }
    for (name, (at, _)) in variables.into_iter().flatten() {
        if name.is_empty() || name.contains('=') {
            problems.add(
                at,
                format!("`{name}` cannot name a variable: it must not be empty or hold `=`"),
            );
        }
    }
}

/// B-25
pub(super) fn header_mirrors(tool: &Tool, at: &At, problems: &mut Problems) {
    let mirrors = Raw::of(&tool.args.schema)
        .ok()
        .map(|schema| header::mirrors(&schema));
    if let Some(Err(error)) = mirrors.filter(|_| !tool.args.schema.is_null()) {
        problems.add(at, format!("the schema of the arguments: {error}"));
    }
}

fn check_item(tool: &Tool, at: &At, item: &Item, grouped: bool, problems: &mut Problems) {
    match item {
        Item::One(parts) => {
            for name in template::part_names(parts) {
                let Some(param) = known(tool, at, name, problems) else {
                    continue;
                };
                check_one(at, name, param, grouped, problems);
            }
        }
        Item::Each(name) => {
            let Some(param) = known(tool, at, name, problems) else {
                return;
            };
            if param.kind != Kind::List {
                problems.add(
                    at,
                    format!("`{{{name}...}}` needs a list, such as args.{name} = \"string[]\""),
                );
            }
            check_secret(at, name, param, problems);
        }
        Item::When { name, .. } => {
            let Some(param) = known(tool, at, name, problems) else {
                return;
            };
            if param.kind != Kind::Boolean {
                problems.add(at, format!("`{{{name}?…}}` needs args.{name} = \"boolean\""));
            }
            check_secret(at, name, param, problems);
        }
        Item::Group(items) => {
            for item in items {
                check_item(tool, at, item, true, problems);
            }
        }
    }
}

fn check_one(at: &At, name: &str, param: &Param, grouped: bool, problems: &mut Problems) {
    check_secret(at, name, param, problems);
    match param.kind {
        Kind::List => problems.add(
            at,
            format!("`{name}` is a list; write \"{{{name}...}}\" as an item of its own"),
        ),
        Kind::Other => problems.add(
            at,
            format!("`{name}` is neither text nor a number; pass it by `stdin = \"arguments\"`"),
        ),
        Kind::Boolean if !param.required && param.default.is_none() && !grouped => problems.add(
            at,
            format!("`{name}` may be absent; write \"{{{name}?--flag}}\", or give it a default"),
        ),
        Kind::Text | Kind::Integer | Kind::Number
            if !param.required && param.default.is_none() && !grouped =>
        {
            problems.add(
                at,
                format!("`{name}` may be absent; put what depends on it in a list of its own, [\"{{{name}}}\"], or give it a default"),
            );
        }
        Kind::Text | Kind::Integer | Kind::Number | Kind::Boolean => {}
    }
}

fn check_secret(at: &At, name: &str, param: &Param, problems: &mut Problems) {
    // S23
    if param.secret {
        problems.add(
            at,
            format!("`{name}` is secret, and a program's arguments can be read by every user of the machine; it is given on stdin (`stdin = \"secrets\"`)"),
        );
    }
}

fn known<'a>(tool: &'a Tool, at: &At, name: &str, problems: &mut Problems) -> Option<&'a Param> {
    let param = tool.args.params.get(name);
    if param.is_none() && !tool.args.schema.is_null() {
        let hint = if tool.args.params.is_empty() {
            format!("; declare it with args.{name} = \"string\"")
        } else {
            suggestion(name, tool.args.params.keys().map(String::as_str))
        };
        problems.add(at, format!("`{{{name}}}` is not a declared argument{hint}"));
    }
    param
}

pub(super) fn names(tool: &Tool, at: &At, problems: &mut Problems) {
    let mut used: std::collections::BTreeSet<&str> = tool
        .command
        .items
        .iter()
        .flat_map(|(_, item)| item.names())
        .collect();
    let stdin = tool.stdin();
    if let Stdin::Text(parts) = &stdin {
        for name in template::part_names(parts) {
            if let Some(param) = known(tool, at, name, problems)
                && !param.required
                && param.default.is_none()
            {
                problems.add(
                    at,
                    format!("`{name}` may be absent; `stdin` needs it, so give it a default"),
                );
            }
            used.insert(name);
        }
    }
    if stdin == Stdin::Arguments {
        return;
    }
    for (name, param) in &tool.args.params {
        let by_stdin = param.secret && stdin == Stdin::Secrets;
        if !used.contains(name.as_str()) && !by_stdin {
            let at = param.at.as_ref().unwrap_or(at);
            problems.add(
                at,
                format!("argument `{name}` is used nowhere: neither in `command` nor in `stdin`"),
            );
        }
    }
}

pub(super) fn output<'a>(tool: &Tool, place: &dyn Fn(&str) -> &'a At, problems: &mut Problems) {
    let structured = matches!(tool.result, Output::Json | Output::Mcp);
    if tool.output_schema.is_some() && !structured {
        problems.add(
            place("output_schema"),
            "`output_schema` needs `result = \"json\"` or `result = \"mcp\"`",
        );
    }
    match (tool.result, tool.files.is_empty()) {
        (Output::Files, true) => problems.add(
            place("result"),
            "`result = \"files\"` needs `files`, such as [\"out/*.pdf\"]",
        ),
        (Output::Text | Output::Json | Output::Mcp, false) => {
            problems.add(place("files"), "`files` needs `result = \"files\"`");
        }
        (Output::Files, false) | (Output::Text | Output::Json | Output::Mcp, true) => {}
    }
    for pattern in &tool.files {
        if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
            problems.add(
                place("files"),
                format!("`{pattern}` leaves the tool's folder; patterns stay below `cwd`"),
            );
        }
    }
    if let Some(pattern) = tool.progress.as_deref().filter(|pattern| *pattern != "off") {
        match regex::RegexBuilder::new(pattern)
            .size_limit(PROGRESS_REGEX_BYTES_MAX)
            .build()
        {
            Ok(regex)
                if !regex
                    .capture_names()
                    .flatten()
                    .any(|name| matches!(name, "n" | "message")) =>
            {
                problems.add(
                    place("progress"),
                    "`progress` needs a group `(?<n>…)` or `(?<message>…)`",
                );
            }
            Ok(_) => {}
            Err(error) => problems.add(
                place("progress"),
                format!("`progress` is not a regular expression: {error}"),
            ),
        }
    }
}
