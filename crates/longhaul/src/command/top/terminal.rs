//! The terminal's second screen, and its keyboard without waiting for the enter key; both are put back at the end.

use std::{
    io::{self, Read, Write},
    ops::ControlFlow,
};

use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use tokio::sync::mpsc;

use crate::exit::Failure;

/// The columns and rows of the terminal.
pub(super) fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(width, height)| {
        (usize::from(width.0).max(1), usize::from(height.0).max(1))
    })
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Enter,
    Escape,
    /// Any other character, in lower case.
    Letter(char),
}

pub(super) struct Terminal {
    /// As it was found; `None` when standard input is no terminal.
    before: Option<Termios>,
    typed: mpsc::Receiver<Vec<u8>>,
    /// Keys that were typed and not taken yet.
    keys: Vec<Key>,
    drawn: String,
    is_entered: bool,
}

impl Terminal {
    pub(super) fn begin() -> Result<Terminal, Failure> {
        let (sender, typed) = mpsc::channel(16);
        // A thread of its own: reading the keyboard cannot be stopped, and the process may end while it does. It reads for
        // the dialogue, too, so that nobody else does.
        std::thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = io::stdin().read(&mut chunk) {
                if sender.blocking_send(chunk[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal {
            before: termios::tcgetattr(io::stdin()).ok(),
            typed,
            keys: Vec::new(),
            drawn: String::new(),
            is_entered: false,
        };
        terminal.enter()?;
        Ok(terminal)
    }

    /// Shows the second screen.
    pub(super) fn enter(&mut self) -> Result<(), Failure> {
        if let Some(before) = &self.before {
            let mut plain = before.clone();
            plain.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &plain)
                .map_err(|error| Failure::fault(error.to_string()))?;
        }
        write("\x1b[?1049h\x1b[?25l\x1b[2J");
        self.is_entered = true;
        self.forget();
        Ok(())
    }

    /// Puts the terminal back as it was.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.is_entered) {
            write("\x1b[?25h\x1b[?1049l");
            if let Some(before) = &self.before {
                let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, before);
            }
        }
    }

    /// What is on the screen is not what was drawn last.
    pub(super) fn forget(&mut self) {
        self.drawn.clear();
    }

    /// Shows these lines and nothing else. They fit, and hold no text that steers the terminal but our own.
    pub(super) fn draw(&mut self, lines: &[String]) {
        let drawn = format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"));
        if drawn != self.drawn {
            // A terminal that knows the first and the last sequence shows the whole at once.
            write(&format!("\x1b[?2026h{drawn}\x1b[?2026l"));
            self.drawn = drawn;
        }
    }

    /// The next key. Waits for ever when standard input was closed: ctrl-c still ends. Safe to drop and call again.
    pub(super) async fn key(&mut self) -> Key {
        loop {
            if !self.keys.is_empty() {
                return self.keys.remove(0);
            }
            match self.typed.recv().await {
                Some(chunk) => self.keys = keys(&chunk),
                None => return std::future::pending().await,
            }
        }
    }

    /// Hands on what is typed, line by line, until the keyboard is closed.
    pub(super) async fn pass_lines(&mut self, lines: mpsc::Sender<String>) {
        self.keys.clear();
        let mut held = Vec::new();
        while let Some(chunk) = self.typed.recv().await {
            held.extend(chunk);
            while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = held.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if lines.send(line).await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The keys in what was read at once. What is no key of ours is left out.
fn keys(chunk: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = chunk;
    while let ControlFlow::Continue((key, after)) = first(rest) {
        keys.extend(key);
        rest = after;
    }
    keys
}

fn first(bytes: &[u8]) -> ControlFlow<(), (Option<Key>, &[u8])> {
    match bytes {
        [] => ControlFlow::Break(()),
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| matches!(byte, 0x40..=0x7e));
            let end = end.unwrap_or(rest.len().saturating_sub(1));
            let key = match rest.get(end) {
                Some(b'A') => Some(Key::Up),
                Some(b'B') => Some(Key::Down),
                Some(_) | None => None,
            };
            ControlFlow::Continue((key, rest.get(end + 1..).unwrap_or_default()))
        }
        [0x1b, rest @ ..] => ControlFlow::Continue((Some(Key::Escape), rest)),
        [b'\r' | b'\n', rest @ ..] => ControlFlow::Continue((Some(Key::Enter), rest)),
        // The end of what is typed, as in other programs.
        [4, rest @ ..] => ControlFlow::Continue((Some(Key::Letter('q')), rest)),
        [letter, rest @ ..] => {
            let letter = letter
                .is_ascii_graphic()
                .then(|| char::from(letter.to_ascii_lowercase()));
            ControlFlow::Continue((letter.map(Key::Letter), rest))
        }
    }
}

fn write(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_however_they_arrive() {
        for (chunk, expect) in [
            (&b"j"[..], &[Key::Letter('j')][..]),
            (b"\x1b[A\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b", &[Key::Escape]),
            (b"\x1b[1;5Cq", &[Key::Letter('q')]),
            (b"\r\n", &[Key::Enter, Key::Enter]),
            (b"\x04", &[Key::Letter('q')]),
            (b"\x1b[", &[]),
            ("é".as_bytes(), &[]),
        ] {
            assert_eq!(keys(chunk), expect, "{chunk:?}");
        }
    }
}
