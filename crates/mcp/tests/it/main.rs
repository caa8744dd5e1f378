//! Tests of the wire, named by the rule they check.

mod canon;
mod client;
mod edge;
mod edits;
mod form;
mod frame;
mod golden;
mod header;
mod malformed;
mod parse;
mod relay;
mod scan;
mod session;
mod support;
mod text;
mod url_rule;
