//! Why a request to a server has no result that can be passed on, in the word and the text that clients read.
//!
//! Used by `outcome`, `relayed` and `dispatch::relay`. Nothing of it names a path, an address, a secret or what others
//! do: that is for whoever runs Longhaul (`longhaul servers show NAME`) and for the log.

use std::fmt;

use longhaul_mcp::{RpcError, request::Answers};

/// Why there is no result: one word and one text each. The words are explained in docs/reference/errors.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request never reached it.
    Unavailable,
    /// It is gone, and its reply with it.
    Lost,
    /// It did not reply in time.
    Silent,
    /// Its reply cannot be read.
    Malformed,
    /// It does not take what Longhaul sends.
    Refused,
    /// It asks what this caller cannot be asked.
    Asked,
    /// It made a task of its own.
    UnaskedTask,
    /// Its result is larger than what is kept.
    ResultTooLarge,
    /// It does not have the tool any more that a task was born with.
    ToolGone,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 9] = [
        Reason::Unavailable,
        Reason::Lost,
        Reason::Silent,
        Reason::Malformed,
        Reason::Refused,
        Reason::Asked,
        Reason::UnaskedTask,
        Reason::ResultTooLarge,
        Reason::ToolGone,
    ];

    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Unavailable => "upstream_unavailable",
            Reason::Lost => "upstream_lost",
            Reason::Silent => "upstream_silent",
            Reason::Malformed => "upstream_malformed",
            Reason::Refused => "upstream_refused",
            Reason::Asked => "upstream_asked",
            Reason::UnaskedTask => "upstream_unasked_task",
            Reason::ResultTooLarge => "result_too_large",
            Reason::ToolGone => "tool_gone",
        }
    }

    /// What the server did; stands after its name.
    const fn text(self) -> &'static str {
        match self {
            Reason::Unavailable => "was not called",
            Reason::Lost => "was lost before it replied",
            Reason::Silent => "did not reply in time",
            Reason::Malformed => "replied with what cannot be read",
            Reason::Refused => "does not take the request",
            Reason::Asked => "asks its caller something that cannot be asked",
            Reason::UnaskedTask => "made a task of the request, which it was not asked for",
            Reason::ResultTooLarge => "returned more than is kept",
            Reason::ToolGone => "no longer has the tool of this task",
        }
    }

    /// The error that a client reads, with more about it where `detail` is not empty.
    pub fn error(self, asked: Asked<'_>, detail: impl fmt::Display) -> RpcError {
        let Asked {
            server,
            runs_longhaul,
            declared: _,
        } = asked;
        let mut text = format!("The server `{server}` {}", self.text());
        let detail = detail.to_string();
        if !detail.is_empty() {
            text = format!("{text}: {detail}");
        }
        if self == Reason::Unavailable && runs_longhaul {
            text.push_str(&format!("; see `longhaul servers show {server}`"));
        }
        RpcError::internal(self.word(), text)
    }
}

/// Which server was asked, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The server's name.
    pub server: &'a str,
    /// Who asked runs Longhaul, too, and may look further.
    pub runs_longhaul: bool,
    /// All that whoever asked declared, or cannot be told to declare.
    pub declared: Answers,
}
