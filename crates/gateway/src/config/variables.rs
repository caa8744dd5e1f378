//! The variables in the files of MCP clients: `${NAME}` and `${NAME:-default}` as Claude Code writes them, `${env:NAME}`,
//! `${workspaceFolder}` and the others of VS Code and Cursor.
//!
//! `client_file` checks them; `upstream::place` replaces them when a server is started. Pure: whoever calls looks them
//! up.

use std::path::Path;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// As it is.
    Text(&'a str),
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: &'a str,
        /// What stands there when it is not set.
        default: Option<&'a str>,
    },
    /// The folder that the file is about.
    Workspace,
    /// The name of that folder.
    WorkspaceName,
    /// The user's home.
    Home,
    /// What stands between the parts of a path.
    Separator,
    /// What only the client can replace.
    OfClient {
        /// The variable as it is written.
        written: &'a str,
        /// Who replaces it, and by what.
        whose: &'static str,
    },
}

/// The parts of a text, in order.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut left = text;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let (piece, rest) = first(left);
        left = rest;
        Some(piece)
    })
}

/// The text with its variables replaced.
///
/// # Errors
/// The name of a variable that is not set, or what only the client can replace.
pub(crate) fn replaced(
    text: &str,
    workspace: &Path,
    look_up: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut replaced = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => replaced.push_str(text),
            Piece::Variable { name, default } => {
                let value = look_up(name).or_else(|| default.map(str::to_owned));
                replaced.push_str(&value.ok_or_else(|| name.to_owned())?);
            }
            Piece::Workspace => replaced.push_str(&workspace.to_string_lossy()),
            Piece::WorkspaceName => {
                let name = workspace.file_name().unwrap_or_default();
                replaced.push_str(&name.to_string_lossy());
            }
            Piece::Home => replaced.push_str(&look_up("HOME").ok_or("HOME")?),
            Piece::Separator => replaced.push('/'),
            Piece::OfClient { written, .. } => return Err(written.to_owned()),
        }
    }
    Ok(replaced)
}

/// The first part of a text that is not empty, and the rest.
fn first(text: &str) -> (Piece<'_>, &str) {
    let begins = text.find("${").unwrap_or(text.len());
    if begins > 0 {
        let (plain, rest) = text.split_at(begins);
        return (Piece::Text(plain), rest);
    }
    let Some(end) = text.find('}') else {
        return (Piece::Text(text), "");
    };
    let (written, rest) = text.split_at(end + 1);
    (variable(written), rest)
}

fn variable(written: &str) -> Piece<'_> {
    let inner = &written[2..written.len() - 1];
    let whose = match inner.split_once(':').map(|(kind, _)| kind) {
        Some("input") => Some("VS Code asks its user for it"),
        Some("command") => Some("VS Code runs a command of its own for it"),
        Some("config") => Some("it is a setting of VS Code"),
        Some("workspaceFolder") => Some("it is one of several folders in VS Code"),
        Some(_) | None => None,
    };
    if let Some(whose) = whose {
        return Piece::OfClient { written, whose };
    }
    match inner {
        "workspaceFolder" => return Piece::Workspace,
        "workspaceFolderBasename" => return Piece::WorkspaceName,
        "userHome" => return Piece::Home,
        "pathSeparator" | "/" => return Piece::Separator,
        _ => {}
    }
    let inner = inner.strip_prefix("env:").unwrap_or(inner);
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    match is_name(name) {
        true => Piece::Variable { name, default },
        // Something of a shell's, perhaps.
        false => Piece::Text(written),
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_as_clients_do() {
        let look_up = |name: &str| match name {
            "TOKEN" => Some("t-1".to_owned()),
            "HOME" => Some("/home/ada".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("Bearer ${TOKEN}", "Bearer t-1"),
            ("${env:TOKEN}${TOKEN}", "t-1t-1"),
            ("${NONE:-x}/${NONE:-}/${TOKEN:-y}", "x//t-1"),
            ("${workspaceFolder}${/}bin", "/srv/site/bin"),
            ("${workspaceFolderBasename} ${userHome}", "site /home/ada"),
            ("$TOKEN ${x%y} ${} ${1} ${", "$TOKEN ${x%y} ${} ${1} ${"),
            ("env:TOKEN", "env:TOKEN"),
        ] {
            assert_eq!(
                replaced(text, Path::new("/srv/site"), &look_up).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        for (text, missing) in [("a ${NONE}", "NONE"), ("${input:key}", "${input:key}")] {
            assert_eq!(replaced(text, Path::new("/"), &look_up), Err(missing.to_owned()));
        }
    }
}
