//! Identifiers. Each is a type of its own, so that one can never stand where another belongs.
//!
//! The core never makes an identifier: randomness is the caller's. It only counts fences and question keys.

use alloc::string::String;
use core::fmt;

/// Bytes as lower-case hexadecimal digits, two for each.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    // Writing into a string cannot fail.
    let _written = write_hex(bytes, &mut text);
    text
}

fn write_hex(bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            /// Thirty-two lower-case hexadecimal digits.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

uuid_newtype! {
    /// The row of a task (UUID version 7). Clients never see it: they see a sealed form.
    TaskId
}
uuid_newtype! {
    /// A process that runs work.
    RunnerId
}
uuid_newtype! {
    /// One attempt to write, minted before the first try. It is the key of the audit record, so a commit whose
    /// reply was lost can be found again.
    StepId
}

/// The fencing number of a task (`epoch` in much of the literature). It rises by one at each claim and nowhere
/// else; a report that carries an older one changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u32);

impl Fence {
    /// That of the next claim.
    pub fn next(self) -> Fence {
        Fence(self.0.saturating_add(1))
    }
}

/// The number of a question within its task, from 1. A key is never used again for the life of the task
/// (C-26). The wire shows it as `q1`, `q2`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionKey(pub u32);

impl fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn identifiers_read_the_same_everywhere() {
        let id = TaskId([0x0f; 16]);
        assert_eq!(format!("{id}"), "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");
        assert_eq!(format!("{id:?}"), "TaskId(0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f)");
        assert_eq!(format!("{}", QuestionKey(3)), "q3");
    }
}
