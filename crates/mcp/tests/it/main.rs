//! Tests of the wire, named by the rule they check.

mod canon;
mod form;
mod frame;
mod golden;
mod header;
mod malformed;
mod parse;
mod scan;
mod support;
mod text;
