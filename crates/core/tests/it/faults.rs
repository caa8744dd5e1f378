//! The list of planted faults agrees with the code.

use std::{collections::BTreeSet, fs, path::Path};

use longhaul_core::fault;

/// Every name in the source stands in the list once, and the other way round.
#[test]
fn every_planted_fault_is_listed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut planted = BTreeSet::new();
    for entry in fs::read_dir(source).expect("read the source") {
        let path = entry.expect("read the source").path();
        if path.ends_with("fault.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("read a source file");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let names = line.split("fault!(\"").skip(1);
            planted.extend(names.map(|rest| rest.split('"').next().expect("a name ends").to_owned()));
        }
    }
    let listed: BTreeSet<_> = fault::ALL.iter().map(|fault| fault.name.to_owned()).collect();
    assert_eq!(listed.len(), fault::ALL.len(), "a fault is listed twice");
    assert_eq!(planted, listed);
}
