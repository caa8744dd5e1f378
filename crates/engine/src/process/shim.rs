//! The shim: to come.
/// Runs the shim.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
