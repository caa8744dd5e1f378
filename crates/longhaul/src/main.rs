//! The `longhaul` binary: flags, the configuration's place, and the crates put together.
//!
//! It decides nothing about tasks. `serve` is the server; `run`, `tasks`, `answer`, `cancel`, `top` and `page`
//! speak with it over the user's socket, `stdio` connects a client to it, and `tasks` reads the database where no server runs. `config`, `doctor`,
//! `logs`, `completions` and `man` need no server, and `demo` starts its own. `ask` and `progress` speak from inside a
//! tool's command.
#![forbid(unsafe_code)]

mod arguments;
mod background;
mod client;
mod command;
mod database;
mod desktop;
mod exit;
mod flags;
mod pipe;
mod places;
mod prompt;
mod screen;
mod service;
mod stored;
mod version;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;

use crate::{
    exit::{Exit, Failure, Outcome},
    flags::{Command, Common, Flags},
};

/// Gives memory back soon after a burst, which the C library's allocator does not (docs/decisions/allocator.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Before anything else: a shim has no use for flags, a runtime or a log, and must be small.
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "__shim" => return longhaul_engine::process::shim::main(),
        Some(word) if word == desktop::program::PRINT_PATH => {
            return desktop::program::main(&words.collect::<Vec<_>>());
        }
        Some(_) | None => {}
    }
    // Where it is not known, whoever needs it says so.
    let _ = places::program();
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                Exit::Usage.code()
            } else {
                Exit::Done.code()
            });
        }
    };
    let as_json = flags.common.json;
    let exit = run(&flags.common, flags.command).unwrap_or_else(|failure| {
        report(&failure, as_json);
        failure.exit
    });
    ExitCode::from(exit.code())
}

fn run(common: &Common, command: Command) -> Outcome {
    match command {
        Command::Ask(flags) => command::speak::ask(&flags, common.json),
        Command::Progress(flags) => command::speak::progress(&flags),
        Command::Completions(flags) => command::completions::completions(&flags),
        Command::Install(flags) => command::install::install(common, &flags),
        Command::Uninstall(flags) => command::uninstall::uninstall(common, &flags),
        Command::Man(flags) => command::man::man(&flags),
        Command::Login(flags) => commanding(command::login::login(common, &flags)),
        Command::Logout(flags) => commanding(command::login::logout(common, &flags)),
        Command::Config(flags) => command::config::config(common, &flags),
        Command::Serve(flags) => serving(common, &flags),
        Command::Stdio(flags) => commanding(command::stdio::stdio(common, &flags)),
        Command::Wrap(flags) => wrapping(common, &flags),
        Command::Run(flags) => commanding(command::run::run(common, &flags)),
        Command::Tasks(flags) => commanding(command::tasks::tasks(common, &flags)),
        Command::Answer(flags) => commanding(command::answer::answer(common, &flags)),
        Command::Cancel(flags) => commanding(command::cancel::cancel(common, &flags)),
        Command::Top => commanding(command::top::top(common)),
        Command::Logs(flags) => commanding(command::logs::logs(common, &flags)),
        Command::Servers(flags) => commanding(command::servers::servers(common, &flags)),
        Command::Page(flags) => commanding(command::page::page(common, &flags)),
        Command::Doctor => commanding(command::doctor::doctor(common)),
        Command::Demo => commanding(command::demo::demo(common)),
    }
}

fn serving(common: &Common, flags: &flags::Serve) -> Outcome {
    served(command::serve::prepare(common, flags)?)
}

/// A thin pipe, or a server of its own.
fn wrapping(common: &Common, flags: &flags::Wrap) -> Outcome {
    let brought = command::wrap::brought(flags)?;
    match flags.in_process {
        true => served(command::serve::prepare_wrapped(common, flags, brought)?),
        false => commanding(command::wrap::wrap(common, flags, &brought)),
    }
}

fn served(prepared: command::serve::Prepared) -> Outcome {
    // Without its thread the allocator gives nothing back while the server is idle; where it cannot have one, so be it.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fault(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(command::serve::serve(prepared));
    // What still blocks a thread is abandoned: everything that must be kept was committed.
    runtime.shutdown_background();
    outcome
}

/// A command waits for one server and one person: one thread is enough.
fn commanding(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fault(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(command);
    runtime.shutdown_background();
    outcome
}

fn report(failure: &Failure, as_json: bool) {
    if as_json {
        let error = serde_json::json!({ "error": {
            "exit": failure.exit.code(), "reason": failure.reason, "message": failure.message, "fix": failure.fix,
        }});
        screen::tell(screen::json(&error.to_string()));
    } else {
        if failure.exit == Exit::Interrupted && std::io::stderr().is_terminal() {
            // The terminal has echoed ctrl-c at the end of what was shown.
            screen::tell("");
        }
        screen::tell(screen::block(&failure.to_string()));
    }
}
