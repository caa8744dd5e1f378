//! A server behind a URL, which lives whatever becomes of Longhaul.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use super::{Http, Rig};

/// One of the fixtures over HTTP, nobody's child; killed when the test ends.
pub(crate) struct Site {
    child: Child,
    port: u16,
}

impl Site {
    /// The fixture of this path, with these options.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server behind a URL is nobody's child in production"
    )]
    pub(crate) fn start(fixture: &str, options: &[&str]) -> Site {
        let mut child = Command::new("python3")
            .args([fixture, "http"])
            .args(options)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().strip_prefix("listening ").expect("its port");
        Site {
            port: port.parse().unwrap(),
            child,
        }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// A user who has it as the server `far`, with more of its settings.
    pub(crate) fn rig(&self, settings: &str) -> Rig {
        Rig::new(&format!(
            "[servers.far]\nrequired = true\nurl = \"http://127.0.0.1:{}/mcp\"\n{settings}",
            self.port
        ))
    }

    pub(crate) fn get(&self, path: &str) -> Http {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Http::parse(&text)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
