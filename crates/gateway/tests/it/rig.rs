//! The shim under which the tests of `command` start programs. Started by `engine::process` only.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul_engine::process::shim::main()
}
