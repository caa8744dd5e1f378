//! The keeper: to come.
use super::*;
pub(super) async fn start(spec: Spec) -> Result<(Facts, Orders), Unstartable> {
    Err(Unstartable::NoDirectory { program: spec.program, cwd: spec.cwd })
}
