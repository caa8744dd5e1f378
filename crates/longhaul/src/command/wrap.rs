//! `longhaul wrap`: what an MCP client starts in the place of one server. It brings the server, with this environment and
//! this folder, to the user's server in the background, and is a pipe to it from then on.
//!
//! It starts no server itself. What it brings may be secret: it goes over the user's socket, and nowhere else.

use std::{env, ffi::OsString, path::Path};

use bytes::Bytes;
use longhaul_gateway::upstream::wrapped::{Brought, Program, Remote};

use super::stdio::carry_all;
use crate::{
    client::{Shown, Way},
    exit::{Failure, Outcome},
    flags::{Common, Wrap},
    places,
    screen::line,
};

/// Runs the command.
pub(crate) async fn wrap(common: &Common, flags: &Wrap, brought: &Brought) -> Outcome {
    let encoded = Bytes::from(brought.encode());
    let way = Way {
        hold: flags.hold,
        shown: Shown::Wrapped(&encoded),
    };
    carry_all(common, way).await
}

/// What the flags, the folder and the environment say.
///
/// # Errors
/// What cannot be wrapped.
pub(crate) fn brought(flags: &Wrap) -> Result<Brought, Failure> {
    let brought = match &flags.url {
        Some(url) => Brought::Remote(Remote {
            url: looked_up(url, "the address")?,
            headers: headers(&flags.headers)?,
        }),
        None => {
            if !flags.headers.is_empty() {
                return Err(Failure::usage("`--header` is for a server at a URL"));
            }
            if flags.command.first().is_some_and(is_longhaul) {
                return Err(Failure::usage(
                    "Longhaul cannot be wrapped in itself: its calls are durable already",
                )
                .fix(
                    "give the client `longhaul stdio`, or the server's own command after `longhaul wrap --`",
                ));
            }
            let cwd = env::current_dir()
                .map_err(|error| Failure::usage(format!("cannot tell the folder to run in: {error}")))?;
            Brought::Program(Program {
                argv: flags.command.clone(),
                cwd,
                env: env::vars_os().collect(),
            })
        }
    };
    brought
        .check()
        .map_err(|unusable| Failure::usage(line(&unusable.to_string())))?;
    Ok(brought)
}

fn is_longhaul(program: &OsString) -> bool {
    let own = places::program().ok();
    let own = own.as_deref().and_then(Path::file_name);
    let named = Path::new(program).file_name();
    named.is_some_and(|named| named == "longhaul" || Some(named) == own)
}

/// The headers by their names. An error names a header, and never what it holds.
fn headers(written: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut headers = Vec::new();
    for header in written {
        let Some((name, value)) = header.split_once('=') else {
            return Err(Failure::usage("a header is written as NAME=VALUE"));
        };
        let value = looked_up(value, &format!("the header `{}`", line(name)))?;
        headers.push((name.to_owned(), value));
    }
    headers.sort();
    Ok(headers)
}

/// What is written, or what the variable holds that it names.
fn looked_up(written: &str, what: &str) -> Result<String, Failure> {
    let Some(variable) = written.strip_prefix("env:") else {
        return Ok(written.to_owned());
    };
    env::var(variable).map_err(|_| {
        Failure::usage(format!(
            "{what} needs the variable `{}`, which is not set or no text",
            line(variable)
        ))
    })
}
