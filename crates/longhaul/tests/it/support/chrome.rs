//! A Chromium that is told what to do over a pipe, in the words of its DevTools protocol.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
};

use serde_json::{Value, json};

use super::{PATIENCE, Rig};

/// Where the packages of a system put it; `build.rs` looks for it there.
pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

/// One browser with one page. Killed when the test ends.
pub(crate) struct Chrome {
    child: Child,
    orders: File,
    told: Receiver<Value>,
    /// What came besides replies and was not looked at yet.
    events: Vec<Value>,
    session: Option<String>,
    count: u64,
    /// Every address that was asked for.
    pub(crate) requested: Vec<String>,
}

impl Chrome {
    /// A browser that finds no name but this machine's.
    #[expect(clippy::disallowed_methods, reason = "the browser is no task's work")]
    pub(crate) fn start(rig: &Rig) -> Chrome {
        let (orders, replies) = (rig.path("browser.orders"), rig.path("browser.replies"));
        for pipe in [&orders, &replies] {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let child = Command::new("sh")
            .args(["-c", "exec 3<\"$0\" 4>\"$1\"; shift; exec \"$@\""])
            .args([&orders, &replies])
            .args([
                CHROMIUM,
                "--headless",
                // CI runs as root, where Chromium has no sandbox; what it opens is this test's own.
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", rig.path("browser").display()))
            .arg("about:blank")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", rig.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = OpenOptions::new().write(true).open(orders).unwrap();
        let mut replies = File::open(replies).unwrap();
        let (sender, told) = channel();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            let mut chunk = vec![0; 1 << 16];
            while let Ok(count @ 1..) = replies.read(&mut chunk) {
                held.extend_from_slice(&chunk[..count]);
                while let Some(end) = held.iter().position(|byte| *byte == 0) {
                    let message: Vec<u8> = held.drain(..=end).collect();
                    let message = serde_json::from_slice(&message[..end]).unwrap();
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        let mut chrome = Chrome {
            child,
            orders,
            told,
            events: Vec::new(),
            session: None,
            count: 0,
            requested: Vec::new(),
        };
        let target = chrome.tell("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = chrome.tell("Target.attachToTarget", target);
        chrome.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Network.enable", "Runtime.enable"] {
            chrome.tell(domain, json!({}));
        }
        chrome
    }

    /// Gives an order and waits for its reply.
    pub(crate) fn tell(&mut self, method: &str, parameters: Value) -> Value {
        self.count += 1;
        let id = self.count;
        let mut order = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).unwrap();
        loop {
            let mut message = self.hear(method);
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.note(message);
        }
    }

    fn hear(&self, waiting_for: &str) -> Value {
        match self.told.recv_timeout(PATIENCE) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("the browser did not reply to {waiting_for}")
            }
        }
    }

    fn note(&mut self, message: Value) {
        if message["method"] == "Network.requestWillBeSent" {
            let url = message["params"]["request"]["url"].as_str().unwrap_or_default();
            self.requested.push(url.to_owned());
        }
        self.events.push(message);
    }

    /// Waits until the page has loaded after what `order` does.
    pub(crate) fn load(&mut self, order: impl FnOnce(&mut Chrome)) {
        self.events.clear();
        order(self);
        while !self
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let message = self.hear("a page that loads");
            self.note(message);
        }
        self.events.clear();
    }

    /// Opens an address.
    pub(crate) fn open(&mut self, url: &str) {
        self.load(|chrome| drop(chrome.tell("Page.navigate", json!({ "url": url }))));
    }

    /// The size of the window, in CSS pixels, and how many dots one has.
    pub(crate) fn resize(&mut self, width: u32, height: u32, scale: u32) {
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": false }),
        );
    }

    /// What this expression is on the page.
    pub(crate) fn see(&mut self, expression: &str) -> Value {
        let seen = self.tell(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true }),
        );
        assert!(seen["exceptionDetails"].is_null(), "{seen}");
        seen["result"]["value"].clone()
    }

    /// Presses a key: `Tab`, `Enter` or `Space`.
    pub(crate) fn press(&mut self, key: &str) {
        let (key, code, number, text) = match key {
            "Tab" => ("Tab", "Tab", 9, ""),
            "Enter" => ("Enter", "Enter", 13, "\r"),
            "Space" => (" ", "Space", 32, " "),
            other => panic!("no key {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.tell(
                "Input.dispatchKeyEvent",
                json!({ "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, "text": text }),
            );
        }
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
