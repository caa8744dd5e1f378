//! The local page in a real browser: hostile text runs nothing and fetches nothing.

use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;

use crate::support::{CHROMIUM, Chrome, Rig};

/// What a script of a payload leaves in the document, where no text can: an attribute.
const RAN: &str = "data-ran=\"1\"";

/// S12
#[test]
#[cfg_attr(not(chromium_at_hand), ignore = "needs /usr/bin/chromium")]
fn in_a_browser_hostile_text_runs_nothing_and_fetches_nothing() {
    let trap = Trap::set();
    let rig = Rig::new("");

    // The trap works: the same text as markup runs and fetches.
    let bare = rig.file("bare.html", &format!("<body>{}", trap.payloads("").join("\n")));
    let shown = browse(&rig, &format!("file://{bare}"));
    assert!(shown.contains(RAN), "{shown}");
    assert!(trap.was_reached());

    let script = rig.file(
        "hostile.sh",
        "longhaul progress 1 2 \"$1\"\nlonghaul ask --text \"$1\" --form \"$2\" >/dev/null\n",
    );
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.hostile]\ndescription = \"x\"\nconcurrency = 20\n\
             command = [\"sh\", \"{script}\", \"{{text}}\", \"{{form}}\"]\nargs.text = \"string\"\nargs.form = \"string\"\n"
        ),
    );
    let _server = rig.serve();
    let mut shown = Vec::new();
    for (at, opening) in OPENINGS.iter().enumerate() {
        let payloads = trap.payloads(opening);
        let mut properties = serde_json::Map::new();
        for (at, payload) in payloads.iter().enumerate() {
            properties.insert(
                format!("t{at}"),
                json!({"type": "string", "title": payload, "description": payload, "default": payload}),
            );
            properties.insert(
                format!("c{at}"),
                json!({"type": "string", "oneOf": [{"const": payload, "title": payload}]}),
            );
        }
        let form = json!({"type": "object", "properties": properties});
        let form = rig.file(&format!("form{at}.json"), &form.to_string());
        let text = payloads.join(" ");
        let name = rig.start(&["hostile", &format!("text={text}"), &format!("form={form}")]);
        rig.until_state(&name, "asking");
        shown.push((name.clone(), browse(&rig, rig.run(&["page", &name]).out.trim())));
    }
    for (name, page) in &shown {
        assert!(
            page.contains("comes from the tool") && page.contains("dataset.ran"),
            "{page}"
        );
        assert!(!page.contains(RAN), "a script ran on the page of {name}");
    }
    let overview = browse(&rig, rig.run(&["page"]).out.trim());
    assert!(
        shown.iter().all(|(name, _)| overview.contains(name)),
        "{overview}"
    );
    assert!(!overview.contains(RAN), "a script ran on the overview");
    assert!(!trap.was_reached(), "something was fetched");
}

// G-30, S11: never prefetched.
#[test]
#[cfg_attr(not(chromium_at_hand), ignore = "needs /usr/bin/chromium")]
fn in_a_browser_the_link_of_a_question_is_shown_and_not_fetched() {
    const LINK: &str = "https://trap.example.com/start";
    let trap = Trap::set();
    let rig = Rig::new("");
    // The trap works: the name leads to it.
    browse_with(&rig, LINK, trap.address);
    assert!(trap.was_reached());

    let script = rig.file(
        "ask.sh",
        &format!(
            "echo '{{\"ask\":{{\"id\":1,\"message\":\"Open {LINK}\",\"url\":\"{LINK}\"}}}}' >&$LONGHAUL_FD\n\
             read -r answer <&$LONGHAUL_FD\n"
        ),
    );
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.link]\ndescription = \"x\"\ncommand = [\"sh\", \"{script}\"]\n"
        ),
    );
    let _server = rig.serve();
    let name = rig.start(&["link"]);
    rig.until_state(&name, "asking");
    for link in [rig.run(&["page", &name]).out, rig.run(&["page"]).out] {
        let page = browse_with(&rig, link.trim(), trap.address);
        assert!(page.contains(&format!("Open {LINK}")), "{page}");
    }
    assert!(!trap.was_reached(), "the link was fetched");
}

// No script is needed, and no pointer.
#[test]
#[cfg_attr(not(chromium_at_hand), ignore = "needs /usr/bin/chromium")]
fn in_a_browser_without_script_the_keyboard_alone_answers_and_cancels() {
    let rig = Rig::new(
        "[tools.asks]\ndescription = \"x\"\n\
         command = [\"sh\", \"-c\", \"longhaul ask --text 'Which region?' --choices eu,us\"]\n\
         [tools.sleeps]\ndescription = \"x\"\ncommand = [\"sleep\", \"600\"]\n",
    );
    let server = rig.serve();
    let (asks, sleeps) = (rig.start(&["asks"]), rig.start(&["sleeps"]));
    rig.until_state(&asks, "asking");
    rig.until_state(&sleeps, "running");
    let mut chrome = Chrome::start(&rig);
    chrome.tell("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    chrome.resize(360, 640, 1);
    chrome.open(rig.run(&["page"]).out.trim());

    tab_to(&mut chrome, "Hold still");
    chrome.load(|chrome| chrome.press("Enter"));
    tab_to(&mut chrome, &format!("Answer {asks}"));
    chrome.load(|chrome| chrome.press("Enter"));
    assert_eq!(chrome.see("location.pathname"), format!("/ask/{asks}"));
    tab_to(&mut chrome, "INPUT");
    chrome.press("Space");
    tab_to(&mut chrome, "Answer");
    chrome.load(|chrome| chrome.press("Enter"));
    rig.until_state(&asks, "done");
    assert_eq!(rig.run(&["tasks", "result", &asks]).out.trim(), "eu");

    chrome.open(&format!("http://{}/?still=1", server.address));
    tab_to(&mut chrome, &format!("Cancel sleeps {sleeps}"));
    chrome.load(|chrome| chrome.press("Enter"));
    assert_eq!(chrome.see("location.pathname"), format!("/tasks/{sleeps}"));
    // It is loaded again by itself, until it has nothing new to say.
    while !chrome
        .see("document.body.textContent.includes('nothing of it is left')")
        .as_bool()
        .unwrap()
    {
        chrome.load(|_| {});
    }
    rig.until_state(&sleeps, "cancelled");
}

/// Presses Tab until the focus is on what begins with this text, or is of this kind. On its way the focus goes down the
/// page, is seen, and is in view.
fn tab_to(chrome: &mut Chrome, wanted: &str) {
    const FOCUS: &str = "(() => {
      const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
      return { text: at.textContent, kind: at.tagName,
        at: [...document.querySelectorAll('*')].indexOf(at),
        seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        inside: box.top < innerHeight && box.bottom > 0 && box.left >= 0 && box.right <= innerWidth };
    })()";
    let mut before = chrome.see(FOCUS)["at"].as_i64().unwrap();
    if chrome
        .see("document.activeElement === document.body")
        .as_bool()
        .unwrap()
    {
        before = -1;
    }
    for _ in 0..40 {
        chrome.press("Tab");
        let focus = chrome.see(FOCUS);
        assert_eq!(focus["seen"], true, "{focus}");
        assert_eq!(focus["inside"], true, "{focus}");
        let at = focus["at"].as_i64().unwrap();
        assert!(at > before, "{focus}");
        before = at;
        if focus["text"].as_str().unwrap().starts_with(wanted) || focus["kind"] == wanted {
            return;
        }
    }
    panic!("`{wanted}` was not reached");
}

/// Ways out of text, attributes, text areas and titles.
const OPENINGS: [&str; 6] = [
    "",
    "\">",
    "'>",
    "</textarea></title>",
    "x-->]]>",
    "\" autofocus onfocus=document.documentElement.dataset.ran=1 x=\"",
];

/// An address that only a payload names.
struct Trap {
    address: SocketAddr,
    reached: Arc<AtomicUsize>,
}

impl Trap {
    fn set() -> Trap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reached = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reached);
        // Each connection is counted and closed at once; the thread ends with the process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        Trap { address, reached }
    }

    /// Ten payloads behind one opening.
    fn payloads(&self, opening: &str) -> Vec<String> {
        let at = format!("http://{}/", self.address);
        let ran = "document.documentElement.dataset.ran=1";
        [
            format!("<script>{ran}</script>"),
            format!("<img src=x: onerror={ran}>"),
            format!("<svg/onload={ran}>"),
            format!("<iframe srcdoc='<script>parent.{ran}</script>'></iframe>"),
            format!("<body onload={ran}>"),
            format!("<img src={at}>"),
            format!("<link rel=stylesheet href={at}>"),
            format!("<iframe src={at}></iframe>"),
            format!("<meta http-equiv=refresh content='9;url={at}'>"),
            format!("<style>*{{background:url({at})}}</style>"),
        ]
        .map(|body| format!("{opening}{body}"))
        .to_vec()
    }

    /// Whether anything connected since this was asked last.
    fn was_reached(&self) -> bool {
        // Connections are counted in their order: when this one is closed, all before it were counted.
        let mut own = TcpStream::connect(self.address).unwrap();
        let _ = own.read(&mut [0]);
        self.reached.swap(0, Ordering::SeqCst) > 1
    }
}

/// The document as it is once the page was loaded and its scripts have run.
fn browse(rig: &Rig, url: &str) -> String {
    browse_by(rig, url, "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
}

/// The same, where one name leads to this address.
fn browse_with(rig: &Rig, url: &str, trap: SocketAddr) -> String {
    let rules = format!("MAP trap.example.com {trap}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
    browse_by(rig, url, &rules)
}

#[expect(clippy::disallowed_methods, reason = "the browser is no task's work")]
fn browse_by(rig: &Rig, url: &str, rules: &str) -> String {
    let profile = rig.path("browser");
    let output = Command::new(CHROMIUM)
        .args([
            "--headless",
            // CI runs as root, where Chromium has no sandbox; what it opens is this test's own.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // A page that never finishes fails the test and does not hold it up.
            "--timeout=20000",
            "--dump-dom",
        ])
        .arg(format!("--host-resolver-rules={rules}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", rig.home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&profile);
    String::from_utf8(output.stdout).unwrap()
}
