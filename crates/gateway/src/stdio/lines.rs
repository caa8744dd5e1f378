//! Bytes to lines, none of them longer than a limit. Read by the connections of [`crate::stdio`] and by the pipe
//! of `longhaul stdio`. It knows no JSON.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// One line from the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Whole(Vec<u8>),
    /// A line that was longer than the limit; it was read to its end and dropped.
    TooLong,
}

/// Reads lines.
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    line_max: usize,
    skips: bool,
}

/// How much is read at once, in bytes.
const CHUNK: usize = 64 * 1024;

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `line_max` bytes.
    pub fn new(reader: R, line_max: usize) -> Lines<R> {
        Lines {
            reader: BufReader::with_capacity(CHUNK, reader),
            line: Vec::new(),
            line_max,
            skips: false,
        }
    }

    /// The next line that is not empty; `None` at the end of the input. What follows the last line end is no line:
    /// its sender did not finish it. Safe to drop and call again.
    ///
    /// # Errors
    /// The reader's.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            if !self.skips && self.line.len() + part.len() > self.line_max {
                self.skips = true;
                self.line = Vec::new();
            }
            if !self.skips {
                self.line.extend_from_slice(part);
            }
            let used = end.map_or(read.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_none() {
                continue;
            }
            if std::mem::take(&mut self.skips) {
                return Ok(Some(Line::TooLong));
            }
            let line = std::mem::take(&mut self.line);
            if !line.trim_ascii().is_empty() {
                return Ok(Some(Line::Whole(line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8], line_max: usize) -> Vec<Line> {
        let mut lines = Lines::new(bytes, line_max);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.expect("bytes can be read") {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_line_ends_with_its_newline_and_empty_ones_are_none() {
        assert_eq!(
            lines(b"one\n\n \r\ntwo\r\nhalf", 10).await,
            [whole("one"), whole("two\r")]
        );
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_dropped_and_the_next_one_is_not() {
        assert_eq!(
            lines(b"12345\n123456\n1\n", 5).await,
            [whole("12345"), Line::TooLong, whole("1")]
        );
    }

    #[tokio::test]
    async fn a_line_longer_than_every_buffer_is_dropped() {
        let long = [&[b'x'; 3 * CHUNK][..], b"\nshort\n"].concat();
        assert_eq!(lines(&long, CHUNK).await, [Line::TooLong, whole("short")]);
        assert_eq!(lines(&long, 3 * CHUNK).await.len(), 2);
    }
}
