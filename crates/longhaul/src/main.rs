//! The `longhaul` binary.
fn main() {}
