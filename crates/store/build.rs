//! Lets the tests see at build time whether a PostgreSQL server and a small disk are at hand, so that the cases that
//! need them are shown as ignored where there are none.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (variable, name) in [
        ("LONGHAUL_TEST_POSTGRES", "postgres_at_hand"),
        ("LONGHAUL_TEST_SMALL_DISK", "small_disk_at_hand"),
    ] {
        println!("cargo::rustc-check-cfg=cfg({name})");
        println!("cargo::rerun-if-env-changed={variable}");
        if std::env::var_os(variable).is_some() {
            println!("cargo::rustc-cfg={name}");
        }
    }
}
