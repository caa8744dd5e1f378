//! The real binary, from outside.

mod cli;
mod page;
mod serve;
mod speak;
mod support;
