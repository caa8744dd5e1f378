//! Which of two versions is newer, by the rules of semantic versioning as far as ours need them.
//!
//! Asked by whoever reaches a server that was started from another file.

/// Whether `ours` is newer than `theirs`. A version that cannot be read is newer than none.
pub(crate) fn is_newer(ours: &str, theirs: &str) -> bool {
    match (parts(ours), parts(theirs)) {
        (Some(ours), Some(theirs)) => ours > theirs,
        (Some(_) | None, _) => false,
    }
}

/// The three numbers, and whether it is a release: one comes after its own previews, whose order is not told.
fn parts(version: &str) -> Option<([u64; 3], bool)> {
    let version = version.split('+').next()?;
    let (numbers, preview) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, true),
        None => (version, false),
    };
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some((numbers, !preview))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_a_preview_comes_before_its_release() {
        for (ours, theirs) in [
            ("0.1.1", "0.1.0"),
            ("0.10.0", "0.9.9"),
            ("1.0.0", "0.99.0"),
            ("0.2.0", "0.2.0-rc.1"),
            ("0.2.0-rc.1", "0.1.9"),
            ("0.2.1+build", "0.2.0"),
        ] {
            assert!(is_newer(ours, theirs), "{ours} after {theirs}");
            assert!(!is_newer(theirs, ours), "{theirs} before {ours}");
            assert!(!is_newer(ours, ours));
        }
    }

    #[test]
    fn what_is_no_version_replaces_nothing_and_is_not_replaced() {
        for odd in ["", "1", "1.2", "1.2.x", "1.2.3.4", "v1.2.3"] {
            assert!(!is_newer(odd, "0.1.0") && !is_newer("0.1.0", odd), "{odd}");
        }
    }
}
