//! Development tasks: `cargo xtask help`.
//!
//! Called by developers and by `.ci/run`. One file a command. It checks, builds and starts things; it never
//! changes a source file, except where a command says `--write` or `--shrink`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool speaks to a person"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a development tool starts programs and measures them"
)]

mod attacks;
mod bench;
mod ci;
mod clients;
mod conformance;
mod desktop;
mod docs;
mod faults;
mod fuzz;
mod layers;
mod packages;
mod pairings;
mod pinned;
mod program;
mod rules;
mod server;
mod servers;
mod soak;
mod weight;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  ci                        everything that CI runs, in order, with times
  layers                    who imports whom, against the table
  rules [--shrink]          rule ids in comments resolve; must-rules without a test
  docs --check | --write    generated pages against their generators
  weight                    crates in the tree and size of the binary, against a budget
  conformance [--through] [--write] [SCENARIO..]
                            the official MCP suite at both revisions, and our own scenarios;
                            through: at two servers, directly and through Longhaul
  clients [CLIENT..]        every real client against the built binary, step by step
  servers                   MCP servers of others behind the binary, used by two clients at once
  desktop                   `install` before three servers, a client killed in a slow call, another that comes back,
                            `uninstall`
  pairings [--all] [--write] [NAME..]
                            clients in front of Longhaul and servers behind it, pair by pair: call, question,
                            result, cancel, and a kill in the middle; a name is a client, a server or a pair
  packages [crate | npm | wheel | deb ..]
                            packages built twice, installed from the built file and used for a first task
  attacks [--peers] [--write] [ROW..]
                            hostile clients against the listener, and an honest one beside them
  soak [--minutes N]        a mixed load with kills for 45 minutes, and its page
  bench [--gateways] [--quick] [--only NAME..] [--render]
                            Longhaul beside its peers under load; the page of its figures
  fuzz [TARGET..] [--quick] [--replay | --seconds N | --runs N | --keep]
                            what comes from outside, read by fuzz targets
  faults [NAME..]           each planted fault must fail a test
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[] as &[String]),
    };
    let outcome = match command {
        "ci" => ci::run(rest),
        "layers" => layers::run(rest),
        "rules" => rules::run(rest),
        "docs" => docs::run(rest),
        "weight" => weight::run(rest),
        "conformance" => conformance::run(rest),
        "clients" => clients::run(rest),
        "servers" => servers::run(rest),
        "desktop" => desktop::run(rest),
        "packages" => packages::run(rest),
        "pairings" => pairings::run(rest),
        "soak" => soak::run(rest),
        "bench" => bench::run(rest),
        "attacks" => attacks::run(rest),
        "faults" => faults::run(rest),
        "fuzz" => fuzz::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown command `{other}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What a command says: nothing, or why it failed.
type Outcome = Result<(), String>;

/// Takes no arguments.
fn no_arguments(command: &str, arguments: &[String]) -> Outcome {
    if arguments.is_empty() {
        Ok(())
    } else {
        Err(format!("`{command}` takes no arguments"))
    }
}
