//! Lets the tests see at build time whether a PostgreSQL server is at hand, so that its cases are shown as ignored
//! where there is none.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(postgres_at_hand)");
    println!("cargo::rerun-if-env-changed=LONGHAUL_TEST_POSTGRES");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("LONGHAUL_TEST_POSTGRES").is_some() {
        println!("cargo::rustc-cfg=postgres_at_hand");
    }
}
