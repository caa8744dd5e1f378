//! How calls without a task are held: the words of the settings that say so.
//!
//! `tool` and `sections` declare settings of these types, and `dispatch` goes by them through the catalog.

use super::setting::choice;

choice! {
    /// For how long a caller without a task is kept waiting.
    Hold {
        /// Until a limit that its client should bear; then it is told that the work goes on.
        Auto = "auto",
        /// Until the end of the work, however long that takes.
        Exact = "exact",
    }
    kind "one of `auto`, `exact`"
}

choice! {
    /// What becomes of the work when the caller of a call without a task leaves before its reply (D-45).
    OnAbandon {
        /// It goes on, unless the caller cancelled the call on purpose.
        Auto = "auto",
        /// It goes on.
        Finish = "finish",
        /// It is cancelled.
        Cancel = "cancel",
    }
    kind "one of `auto`, `finish`, `cancel`"
}

choice! {
    /// Whom a tool's `output_schema` is listed to.
    ShowSchema {
        /// Callers that take tasks, and everybody where `hold = "exact"`.
        Auto = "auto",
        /// Everybody.
        Always = "always",
        /// Nobody.
        Never = "never",
    }
    kind "one of `auto`, `always`, `never`"
}
