//! `longhaul config`: makes, checks and shows the configuration.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use longhaul_gateway::{
    config::{self, is_clients_file},
    upstream,
};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure, Outcome},
    flags::{Common, Config},
    places,
    screen::{self, line, say, say_json, tell},
};

/// Runs the command.
pub(crate) fn config(common: &Common, flags: &Config) -> Outcome {
    match flags {
        Config::Init { file } => init(file),
        Config::Check => check(common),
        Config::Show => show(common),
        Config::Schema => {
            say_json(&config::schema())?;
            Ok(Exit::Done)
        }
    }
}

/// Never writes over a file.
fn init(file: &Path) -> Outcome {
    let shown = file.display();
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(file);
    let written = made.and_then(|mut made| made.write_all(config::init().as_bytes()));
    match written {
        Ok(()) => {
            say(format!("wrote {shown}; next: longhaul serve --config {shown}"));
            Ok(Exit::Done)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Failure::usage(format!(
            "`{shown}` is there already, and is left as it is"
        ))
        .fix("name another file")),
        Err(error) => Err(Failure::usage(format!("cannot write `{shown}`: {error}"))),
    }
}

fn check(common: &Common) -> Outcome {
    let loaded = places::load(common, true)?;
    let mut warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    let env: Vec<_> = std::env::vars_os().collect();
    for server in loaded.config.servers_in_order() {
        let faults = upstream::place::faults(server, &env).into_iter();
        warnings.extend(faults.map(|fault| format!("server `{}`: {fault}", server.name)));
    }
    if common.json {
        say_json(&serde_json::json!({ "ok": true, "files": loaded.files, "warnings": warnings }))?;
        return Ok(Exit::Done);
    }
    for warning in &warnings {
        tell(format!("warning: {}", line(warning)));
    }
    match loaded.files.first() {
        Some(file) => say(format!(
            "{}: fine; {}",
            file.display(),
            screen::declared(&loaded.config)
        )),
        None => say("there is no configuration; the defaults hold"),
    }
    Ok(Exit::Done)
}

/// Every setting with its value, and where the value comes from.
fn show(common: &Common) -> Outcome {
    let loaded = places::load(common, true)?;
    let written = written(&loaded.files)?;
    let tools: Vec<&str> = loaded
        .config
        .in_order()
        .into_iter()
        .map(|tool| tool.name.as_str())
        .collect();
    let servers: Vec<&str> = loaded
        .config
        .servers_in_order()
        .into_iter()
        .map(|server| server.name.as_str())
        .collect();
    let toolsets: Vec<&String> = loaded.config.toolsets.keys().collect();
    let shown: Vec<Shown> = config::reference()
        .iter()
        // A tool's settings are in its own file, as it was written; here are those that every server has.
        .filter(|setting| setting.variable().is_some())
        .map(|setting| Shown::of(setting, &written))
        .collect();
    if common.json {
        say_json(
            &serde_json::json!({ "files": loaded.files, "settings": shown, "tools": tools, "servers": servers,
                "toolsets": toolsets }),
        )?;
        return Ok(Exit::Done);
    }
    for Shown { name, value, from } in &shown {
        say(line(&format!("{name:<34} {value:<24} {from}")));
    }
    for tool in tools {
        say(line(&format!("tools.{tool}")));
    }
    for server in servers {
        say(line(&format!("servers.{server}")));
    }
    for toolset in toolsets {
        say(line(&format!("toolsets.{toolset}")));
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Shown {
    name: String,
    value: String,
    from: String,
}

impl Shown {
    fn of(setting: &config::Setting, written: &[(String, toml::Table)]) -> Shown {
        let name = format!("{}.{}", setting.section, setting.key);
        let variable = setting
            .variable()
            .filter(|variable| std::env::var_os(variable).is_some());
        let in_file = written.iter().find_map(|(file, table)| {
            let value = table.get(setting.section)?.get(setting.key)?;
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((value, file.clone()))
        });
        let (value, from) = match (variable, in_file) {
            (Some(variable), _) => (std::env::var(&variable).unwrap_or_default(), variable),
            (None, Some(found)) => found,
            (None, None) => (setting.default.to_owned(), "default".to_owned()),
        };
        Shown {
            name,
            value: without_password(&value),
            from,
        }
    }
}

fn written(files: &[std::path::PathBuf]) -> Result<Vec<(String, toml::Table)>, Failure> {
    let own = files.iter().filter(|file| !is_clients_file(file));
    own.map(|file| {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read `{shown}`: {error}")))?;
        let table = text
            .parse()
            .map_err(|error| Failure::usage(format!("cannot read `{shown}`: {error}")))?;
        Ok((shown, table))
    })
    .collect()
}

/// `scheme://user:password@host` without the password.
fn without_password(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    match rest
        .rsplit_once('@')
        .and_then(|(user, host)| Some((user.split_once(':')?.0, host)))
    {
        Some((user, host)) => format!("{scheme}://{user}:…@{host}"),
        None => value.to_owned(),
    }
}
