//! Bytes to lines: however the bytes arrive, the lines are the same, and none is longer than the limit.
//!
//! The first byte of an input is the limit, the second chooses how the rest is cut into pieces.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use longhaul_gateway::stdio::lines::{Line, Lines};
use tokio::io::{AsyncRead, ReadBuf};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let [limit, cut, input @ ..] = bytes else { return };
    let limit = usize::from(*limit);
    let expected = expected(input, limit);
    assert_eq!(read(Pieces::new(input, None), limit), expected, "in one piece");
    assert_eq!(
        read(Pieces::new(input, Some(*cut)), limit),
        expected,
        "in pieces by {cut}"
    );
    for line in &expected {
        match line {
            Line::Whole(line) => assert!(line.len() <= limit && !line.contains(&b'\n')),
            Line::TooLong => {}
        }
    }
}

/// What the documentation of `Lines` says, in other words.
fn expected(input: &[u8], limit: usize) -> Vec<Line> {
    let Some(last) = input.iter().rposition(|byte| *byte == b'\n') else {
        return Vec::new();
    };
    input[..last]
        .split(|byte| *byte == b'\n')
        .filter(|line| line.len() > limit || !line.trim_ascii().is_empty())
        .map(|line| {
            if line.len() > limit {
                Line::TooLong
            } else {
                Line::Whole(line.to_vec())
            }
        })
        .collect()
}

/// Reads all lines. A wait that gives nothing is dropped, as the loop of a connection drops it for another event.
fn read(pieces: Pieces<'_>, limit: usize) -> Vec<Line> {
    let mut context = Context::from_waker(Waker::noop());
    let mut lines = Lines::new(pieces, limit);
    let mut all = Vec::new();
    loop {
        match pin!(lines.next()).poll(&mut context) {
            Poll::Pending => {}
            Poll::Ready(Ok(Some(line))) => all.push(line),
            Poll::Ready(Ok(None)) => return all,
            Poll::Ready(Err(error)) => panic!("bytes in memory cannot fail: {error}"),
        }
    }
}

/// Gives its bytes in pieces, and every other time nothing yet.
struct Pieces<'a> {
    rest: &'a [u8],
    /// `None`: all at once.
    cut: Option<u8>,
    gives: bool,
}

impl<'a> Pieces<'a> {
    fn new(rest: &'a [u8], cut: Option<u8>) -> Pieces<'a> {
        Pieces {
            rest,
            cut,
            gives: true,
        }
    }

    fn next_len(&mut self) -> usize {
        let Some(cut) = &mut self.cut else {
            return self.rest.len();
        };
        *cut = cut.wrapping_mul(167).wrapping_add(13);
        usize::from(*cut >> 3) + 1
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.gives = !self.gives || self.cut.is_none();
        if !self.gives {
            return Poll::Pending;
        }
        let len = self.next_len().min(self.rest.len()).min(buffer.remaining());
        let (piece, rest) = self.rest.split_at(len);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}
