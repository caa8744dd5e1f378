//! JSON text as a row of tokens, one pass, no recursion: nesting costs a byte a level, never a stack frame.
//!
//! [`crate::scan`] and [`crate::canon`] read through this module. It knows the grammar and what a string may
//! hold; limits are its callers' business.

use std::borrow::Cow;

use thiserror::Error;

/// One token. Strings are unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Name(Cow<'a, str>),
    Text(Cow<'a, str>),
    Number(&'a str),
    True,
    False,
    Null,
}

/// What makes bytes no JSON text that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadText {
    /// The grammar of JSON is broken.
    #[error("not JSON")]
    Syntax,
    /// Half of a surrogate pair stands alone.
    #[error("lone surrogate in a string")]
    LoneSurrogate,
    /// A string holds U+0000.
    #[error("U+0000 in a string")]
    Nul,
}

/// A broken rule and the offset of the byte at which it broke.
pub(crate) type Broken = (BadText, usize);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrArrayEnd,
    Name,
    NameOrObjectEnd,
    CommaOrEnd,
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

/// Reads tokens from a text.
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    token_start: usize,
    open: Vec<Open>,
    expect: Expect,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Tokens<'a> {
        Tokens {
            text,
            at: 0,
            token_start: 0,
            open: Vec::new(),
            expect: Expect::Value,
        }
    }

    /// How many objects and arrays are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Where the last token began, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.token_start
    }

    /// The next token; `None` at the end of a complete text.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, Broken> {
        loop {
            self.skip_space();
            self.token_start = self.at;
            let Some(byte) = self.peek() else {
                return if self.expect == Expect::Nothing {
                    Ok(None)
                } else {
                    self.syntax()
                };
            };
            match (self.expect, byte) {
                (Expect::Nothing, _) => return self.syntax(),
                (Expect::CommaOrEnd, b',') => {
                    self.at += 1;
                    self.expect = match self.open.last() {
                        Some(Open::Object) => Expect::Name,
                        Some(Open::Array) => Expect::Value,
                        None => return self.syntax(),
                    };
                }
                (Expect::CommaOrEnd | Expect::NameOrObjectEnd, b'}') => return self.close(Open::Object),
                (Expect::CommaOrEnd | Expect::ValueOrArrayEnd, b']') => return self.close(Open::Array),
                (Expect::Name | Expect::NameOrObjectEnd, b'"') => return self.name().map(Some),
                (Expect::Value | Expect::ValueOrArrayEnd, _) => return self.value(byte).map(Some),
                (Expect::CommaOrEnd | Expect::Name | Expect::NameOrObjectEnd, _) => return self.syntax(),
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn syntax<T>(&self) -> Result<T, Broken> {
        Err((BadText::Syntax, self.at))
    }

    fn close(&mut self, which: Open) -> Result<Option<Token<'a>>, Broken> {
        if self.open.last() != Some(&which) {
            return self.syntax();
        }
        self.open.pop();
        self.at += 1;
        self.value_done();
        Ok(Some(if which == Open::Object {
            Token::ObjectEnd
        } else {
            Token::ArrayEnd
        }))
    }

    fn value_done(&mut self) {
        self.expect = if self.open.is_empty() {
            Expect::Nothing
        } else {
            Expect::CommaOrEnd
        };
    }

    fn name(&mut self) -> Result<Token<'a>, Broken> {
        let name = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.syntax();
        }
        self.at += 1;
        self.expect = Expect::Value;
        Ok(Token::Name(name))
    }

    fn value(&mut self, first: u8) -> Result<Token<'a>, Broken> {
        match first {
            b'{' => {
                self.at += 1;
                self.open.push(Open::Object);
                self.expect = Expect::NameOrObjectEnd;
                return Ok(Token::ObjectStart);
            }
            b'[' => {
                self.at += 1;
                self.open.push(Open::Array);
                self.expect = Expect::ValueOrArrayEnd;
                return Ok(Token::ArrayStart);
            }
            _ => {}
        }
        let token = match first {
            b'"' => Token::Text(self.string()?),
            b'-' | b'0'..=b'9' => Token::Number(self.number()?),
            b't' => self.word("true", Token::True)?,
            b'f' => self.word("false", Token::False)?,
            b'n' => self.word("null", Token::Null)?,
            _ => return self.syntax(),
        };
        self.value_done();
        Ok(token)
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Result<Token<'a>, Broken> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return self.syntax();
        }
        self.at += word.len();
        Ok(token)
    }

    fn number(&mut self) -> Result<&'a str, Broken> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), Broken> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.syntax() } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Broken> {
        self.at += 1;
        let mut plain_from = self.at;
        let mut unescaped = String::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &self.text[plain_from..self.at];
                    self.at += 1;
                    return Ok(if unescaped.is_empty() {
                        Cow::Borrowed(rest)
                    } else {
                        unescaped.push_str(rest);
                        Cow::Owned(unescaped)
                    });
                }
                Some(b'\\') => {
                    unescaped.push_str(&self.text[plain_from..self.at]);
                    unescaped.push(self.escape()?);
                    plain_from = self.at;
                }
                Some(0) => return Err((BadText::Nul, self.at)),
                None | Some(0x01..=0x1f) => return self.syntax(),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Broken> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(b'u') => return self.unicode_escape(start),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) | None => return self.syntax(),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, Broken> {
        let lone = Err((BadText::LoneSurrogate, start));
        let unit = self.hex_unit()?;
        let code = match unit {
            0 => return Err((BadText::Nul, start)),
            0xd800..=0xdbff => {
                if self.peek() != Some(b'\\') || self.text.as_bytes().get(self.at + 1) != Some(&b'u') {
                    return lone;
                }
                self.at += 1;
                match self.hex_unit()? {
                    low @ 0xdc00..=0xdfff => 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
                    _ => return lone,
                }
            }
            _ => unit,
        };
        char::from_u32(code).map_or(lone, Ok)
    }

    /// Reads `uXXXX`.
    fn hex_unit(&mut self) -> Result<u32, Broken> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
        let Some(digits) = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)) else {
            return self.syntax();
        };
        self.at += 5;
        Ok(digits.iter().fold(0, |unit, digit| {
            unit * 16 + char::from(*digit).to_digit(16).unwrap_or(0)
        }))
    }
}
