//! One keep-alive connection of HTTP/1.1, with as little work as can be: the driver shares its processors with the
//! server.
//!
//! Reads plain bodies, chunked ones and event streams. Never pipelines.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const HEADERS_MAX: usize = 64;
const READ: usize = 16 * 1024;
/// No reply of a measured call is as large.
const REPLY_MAX: usize = 8 << 20;

/// What every request of a run has in common.
#[derive(Clone)]
pub struct Target {
    /// Host and port.
    pub address: String,
    pub path: String,
    pub version: &'static str,
    /// Whether the method and the name are mirrored in headers.
    pub mirrors: bool,
    pub session: Option<String>,
    /// More headers, as they are written.
    pub headers: String,
}

impl Target {
    /// # Errors
    /// When it is no `http://HOST:PORT/PATH`.
    pub fn new(
        url: &str,
        version: &'static str,
        mirrors: bool,
        headers: &[String],
    ) -> Result<Target, String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or("an address begins with http://")?;
        let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Target {
            address: address.to_owned(),
            path: format!("/{path}"),
            version,
            mirrors,
            session: None,
            headers: headers.iter().map(|header| format!("\r\n{header}")).collect(),
        })
    }
}

pub struct Connection {
    target: Target,
    stream: Option<TcpStream>,
    out: Vec<u8>,
    read: Vec<u8>,
    body: Vec<u8>,
    pub reconnects: u64,
    /// The session that the last reply named.
    pub session: Option<String>,
}

/// What the head of a reply says.
struct Head {
    length: usize,
    status: u16,
    content: Option<usize>,
    chunked: bool,
    events: bool,
    closes: bool,
    session: Option<String>,
}

impl Connection {
    pub fn new(target: Target) -> Connection {
        Connection {
            target,
            stream: None,
            out: Vec::with_capacity(2048),
            read: Vec::with_capacity(READ),
            body: Vec::with_capacity(READ),
            reconnects: 0,
            session: None,
        }
    }

    /// Sends one message and returns the reply's JSON. A connection that the server closed in between is opened again.
    ///
    /// # Errors
    /// What went wrong, in a few words: they are counted by their text.
    pub async fn exchange(&mut self, method: &str, name: &str, body: &[u8]) -> Result<&[u8], String> {
        self.write_request(method, name, body);
        let fresh = self.stream.is_none();
        let head = match self.send_and_read_head().await {
            Err(Broken::Closed) if !fresh => {
                self.stream = None;
                self.reconnects += 1;
                self.send_and_read_head().await
            }
            other => other,
        };
        let outcome = match head {
            Ok(head) => self.read_body(head).await,
            Err(Broken::Closed) => Err("closed without a reply".to_owned()),
            Err(Broken::Other(why)) => Err(why),
        };
        if outcome.is_err() {
            self.stream = None;
        }
        outcome.map(|()| &self.body[..])
    }

    /// Sends one message and reads the stream that answers it, until enough of it was seen.
    ///
    /// # Errors
    /// When the stream ends before, or is none.
    pub async fn follow(
        mut self,
        method: &str,
        body: &[u8],
        mut enough: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        self.write_request(method, "", body);
        let head = match self.send_and_read_head().await {
            Ok(head) => head,
            Err(Broken::Closed) => return Err("closed without a reply".to_owned()),
            Err(Broken::Other(why)) => return Err(why),
        };
        if head.status != 200 || !head.events {
            return Err(format!("no stream: HTTP {}", head.status));
        }
        while !enough(&self.read) {
            self.more().await?;
        }
        Ok(())
    }

    fn write_request(&mut self, method: &str, name: &str, body: &[u8]) {
        let out = &mut self.out;
        out.clear();
        for part in [
            "POST ",
            &self.target.path,
            " HTTP/1.1\r\nhost: ",
            &self.target.address,
        ] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(
            b"\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: ",
        );
        out.extend_from_slice(self.target.version.as_bytes());
        if self.target.mirrors {
            out.extend_from_slice(b"\r\nmcp-method: ");
            out.extend_from_slice(method.as_bytes());
            if !name.is_empty() {
                out.extend_from_slice(b"\r\nmcp-name: ");
                out.extend_from_slice(name.as_bytes());
            }
        }
        if let Some(session) = &self.target.session {
            out.extend_from_slice(b"\r\nmcp-session-id: ");
            out.extend_from_slice(session.as_bytes());
        }
        out.extend_from_slice(self.target.headers.as_bytes());
        out.extend_from_slice(format!("\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
    }

    async fn send_and_read_head(&mut self) -> Result<Head, Broken> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(&self.target.address)
                .await
                .map_err(|error| Broken::Other(format!("connect: {}", error.kind())))?;
            stream
                .set_nodelay(true)
                .map_err(|error| Broken::Other(format!("no delay: {}", error.kind())))?;
            self.stream = Some(stream);
        }
        self.read.clear();
        let Some(stream) = self.stream.as_mut() else {
            return Err(Broken::Closed);
        };
        stream.write_all(&self.out).await.map_err(|_| Broken::Closed)?;
        loop {
            if let Some(head) = head(&self.read).map_err(Broken::Other)? {
                return Ok(head);
            }
            let count = stream
                .read_buf(&mut self.read)
                .await
                .map_err(|_| Broken::Closed)?;
            if count == 0 {
                return Err(Broken::Closed);
            }
        }
    }

    async fn read_body(&mut self, head: Head) -> Result<(), String> {
        self.body.clear();
        if head.chunked {
            self.read_chunks(head.length).await?;
        } else if let Some(length) = head.content {
            if length > REPLY_MAX {
                return Err("a reply that is too large".to_owned());
            }
            while self.read.len() < head.length + length {
                self.more().await?;
            }
            self.body
                .extend_from_slice(&self.read[head.length..head.length + length]);
        } else {
            while self.more().await.is_ok() {}
            self.body.extend_from_slice(&self.read[head.length..]);
        }
        if head.closes || (!head.chunked && head.content.is_none()) {
            self.stream = None;
        }
        if head.session.is_some() {
            self.session = head.session;
        }
        if !matches!(head.status, 200 | 202) {
            return Err(format!("HTTP {}: {}", head.status, beginning(&self.body)));
        }
        if head.events {
            self.body = last_reply(&self.body)?;
        }
        Ok(())
    }

    async fn read_chunks(&mut self, mut at: usize) -> Result<(), String> {
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&self.read[at..]) {
                    Ok(httparse::Status::Complete((start, size))) => break (at + start, size as usize),
                    Ok(httparse::Status::Partial) => self.more().await?,
                    Err(_) => return Err("a chunk without a size".to_owned()),
                }
            };
            if size > REPLY_MAX || self.body.len() > REPLY_MAX {
                return Err("a reply that is too large".to_owned());
            }
            while self.read.len() < start + size + 2 {
                self.more().await?;
            }
            self.body.extend_from_slice(&self.read[start..start + size]);
            at = start + size + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn more(&mut self) -> Result<(), String> {
        let stream = self.stream.as_mut().ok_or("closed in a reply")?;
        match stream.read_buf(&mut self.read).await {
            Ok(0) | Err(_) => Err("closed in a reply".to_owned()),
            Ok(_) if self.read.len() > 2 * REPLY_MAX => Err("a reply that is too large".to_owned()),
            Ok(_) => Ok(()),
        }
    }
}

enum Broken {
    /// Before the first byte of a reply.
    Closed,
    Other(String),
}

/// The head of a reply, once all of it is there.
fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut reply = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = reply
        .parse(bytes)
        .map_err(|error| format!("no HTTP reply: {error}"))?
    else {
        return Ok(None);
    };
    let mut head = Head {
        length,
        status: reply.code.unwrap_or(0),
        content: None,
        chunked: false,
        events: false,
        closes: false,
        session: None,
    };
    for header in reply.headers {
        let value = std::str::from_utf8(header.value).unwrap_or_default();
        if header.name.eq_ignore_ascii_case("content-length") {
            head.content = value.trim().parse().ok();
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.chunked = value.eq_ignore_ascii_case("chunked");
        } else if header.name.eq_ignore_ascii_case("content-type") {
            head.events = value.starts_with("text/event-stream");
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        } else if header.name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(value.to_owned());
        }
    }
    Ok(Some(head))
}

/// The reply in an event stream: its last event that has a result or an error.
fn last_reply(stream: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(stream).map_err(|_| "a stream that is no text")?;
    let mut reply = None;
    let mut data = String::new();
    for line in text.lines().chain([""]) {
        if let Some(part) = line.strip_prefix("data:") {
            data.push_str(part.strip_prefix(' ').unwrap_or(part));
        } else if line.is_empty() && !data.is_empty() {
            if data.contains("\"result\"") || data.contains("\"error\"") {
                reply = Some(std::mem::take(&mut data));
            }
            data.clear();
        }
    }
    reply
        .map(String::into_bytes)
        .ok_or_else(|| "a stream without a reply".to_owned())
}

/// The first bytes of a body, to tell what went wrong.
pub fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(160)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{head, last_reply};

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let reply =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n";
        assert!(head(&reply[..40]).unwrap().is_none());
        let head = head(reply).unwrap().unwrap();
        assert!(head.chunked && head.events && !head.closes);
        assert_eq!(head.status, 200);
    }

    #[test]
    fn the_reply_of_a_stream_is_its_last_message_with_a_result() {
        let stream = b"event: message\ndata: {\"method\":\"x\"}\n\ndata: {\"result\":1}\n\n: still here\n\n";
        assert_eq!(last_reply(stream).unwrap(), b"{\"result\":1}");
        assert!(last_reply(b"data: {}\n\n").is_err());
    }
}
