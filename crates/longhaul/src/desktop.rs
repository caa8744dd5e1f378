//! The clients on a user's desktop: their configuration, read and changed so that their servers run through Longhaul.
//!
//! Called by `install`, `uninstall` and `doctor`. A change is a splice of the text, so what it does not name stays as
//! it is; [`plan`] reads what comes out and refuses it when it does not say what was meant.

pub(crate) mod back;
pub(crate) mod clients;
pub(crate) mod document;
pub(crate) mod entry;
pub(crate) mod file;
mod json;
pub(crate) mod look;
mod mend;
pub(crate) mod plan;
pub(crate) mod program;
mod secret;
pub(crate) mod shown;
mod toml;
mod tree;
pub(crate) mod undo;
