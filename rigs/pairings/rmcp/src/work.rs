//! Work that goes on until the rig lets it end, as `servers/work.py` does it for the servers in Python.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

const BEAT: Duration = Duration::from_millis(200);

/// Works until the rig lets it end.
pub async fn waits(label: &str) -> io::Result<String> {
    let folder = PathBuf::from(env::var("LONGHAUL_PAIRINGS").unwrap_or_default());
    let file = |ending: &str| folder.join(format!("{label}.{ending}"));
    let mut starts = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file("starts"))?;
    writeln!(starts, "begins")?;
    while !file("open").exists() {
        fs::write(file("beat"), "")?;
        tokio::time::sleep(BEAT).await;
    }
    Ok(format!("{label}: let go"))
}
