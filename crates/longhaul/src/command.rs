//! The commands, one file each. Each takes what the person wrote and says how the process ends.

pub(crate) mod answer;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod page;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod speak;
pub(crate) mod stdio;
pub(crate) mod tasks;
pub(crate) mod top;
pub(crate) mod uninstall;
pub(crate) mod wrap;
