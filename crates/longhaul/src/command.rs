//! The commands, one file each. Each takes what the person wrote and says how the process ends.

pub mod answer;
pub mod cancel;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod logs;
pub mod page;
pub mod run;
pub mod serve;
pub mod speak;
pub mod tasks;
pub mod top;
