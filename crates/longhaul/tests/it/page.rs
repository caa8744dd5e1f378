//! The local page of a real server: who is let in, what is shown, what is never shown.

use std::collections::BTreeSet;

use longhaul_engine::clock;
use serde_json::{Value, json};

use crate::support::{Http, PATIENCE, Rig, Server};

const TOOLS: &str = r#"
[tools.asks]
description = "Asks where"
command = ["sh", "-c", "longhaul ask --text 'Which region?' --choices eu,us; echo code $?"]
"#;

fn asking() -> (Rig, Server, String, String) {
    let rig = Rig::new(TOOLS);
    let server = rig.serve();
    let name = rig.start(&["asks"]);
    rig.until_state(&name, "asking");
    let cookie = server.enter(&rig);
    (rig, server, name, cookie)
}

fn origin(server: &Server) -> String {
    format!("http://{}", server.address)
}

#[test]
fn a_question_is_seen_and_answered_without_script() {
    let (rig, server, name, cookie) = asking();
    let overview = server.get("/", &cookie);
    assert!(overview.body.contains("Which region?") && overview.body.contains(&format!("/ask/{name}")));
    let ask = server.get(&format!("/ask/{name}"), &cookie);
    assert_eq!(ask.status, 200);
    assert!(
        !ask.body.contains("<script"),
        "no script is needed, and none is there"
    );
    let (token, question) = (ask.hidden("form_token"), ask.hidden("question"));
    let form = |value: &'static str| {
        [
            ("form_token", token.as_str()),
            ("question", question.as_str()),
            ("f.answer", value),
            ("action", "accept"),
        ]
    };
    let path = format!("/ask/{name}");
    let misfit = server.post(&path, &cookie, &origin(&server), &form("moon"));
    assert_eq!(misfit.status, 422, "{}", misfit.head);
    assert!(misfit.body.contains("role=\"alert\""));
    let answered = server.post(&path, &cookie, &origin(&server), &form("us"));
    assert_eq!(answered.status, 303, "{}", answered.body);
    rig.until_state(&name, "done");
    assert_eq!(rig.run(&["tasks", "result", &name]).out.trim(), "us\ncode 0");
    assert!(
        server
            .get(&format!("/tasks/{name}"), &cookie)
            .body
            .contains("us\ncode 0")
    );
}

#[test]
fn the_fields_of_a_form_stand_in_the_order_of_its_file() {
    let rig = Rig::new("");
    let form = rig.file(
        "form.json",
        "{\"type\": \"object\",\n \"properties\": {\n\"zone\": {\"type\": \"string\"},\n\"at\": {\"type\": \"string\"}}}\n",
    );
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.asks]\ndescription = \"x\"\n\
             command = [\"longhaul\", \"ask\", \"--text\", \"Where?\", \"--form\", \"{form}\"]\n"
        ),
    );
    let server = rig.serve();
    let name = rig.start(&["asks"]);
    rig.until_state(&name, "asking");
    let page = server.get(&format!("/ask/{name}"), &server.enter(&rig)).body;
    let place = |field: &str| page.find(&format!("name=\"f.{field}\"")).unwrap();
    assert!(place("zone") < place("at"), "{page}");
}

#[test]
fn a_task_is_cancelled_from_the_page() {
    let (rig, server, name, cookie) = asking();
    let token = server.get("/", &cookie).hidden("form_token");
    let path = format!("/tasks/{name}/cancel");
    assert_eq!(
        server
            .post(&path, &cookie, &origin(&server), &[("form_token", &token)])
            .status,
        303
    );
    rig.until_state(&name, "cancelled");
}

#[test]
fn a_cancelled_task_shows_how_many_of_its_processes_are_gone() {
    // Three processes: one of them takes no notice of TERM.
    let rig = Rig::new(
        "[tools.tree]\ndescription = \"x\"\ncommand = [\"sh\", \"-c\", \"\"\"\n\
         sleep 600 &\nsh -c 'trap \"\" TERM; exec sleep 601' &\necho on its way; echo loud >&2; longhaul progress 1 2 begun\nwait\"\"\"]\n",
    );
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let name = rig.start(&["tree"]);
    let path = format!("/tasks/{name}");
    until_shown(&server, &path, &cookie, |body| {
        body.contains("on its way") && body.contains("loud") && body.contains("50 %")
    });
    until_ignored(&rig);
    let token = server.get("/", &cookie).hidden("form_token");
    let sent = server.post(
        &format!("{path}/cancel"),
        &cookie,
        &origin(&server),
        &[("form_token", &token)],
    );
    assert_eq!(sent.status, 303);
    let stopping = until_shown(&server, &path, &cookie, |body| {
        body.contains("2 of 3 processes gone")
    });
    assert!(stopping.contains("<li>sleep"), "{stopping}");
    assert!(
        stopping.contains("content=\"1;url="),
        "it is loaded again every second"
    );
    let told = rig.run(&["tasks", &name]).out;
    assert!(told.contains("2 of 3 processes gone"), "{told}");
    rig.until_state(&name, "cancelled");
    let ended = server.get(&path, &cookie).body;
    assert!(ended.contains("stopped; nothing of it is left"), "{ended}");
}

/// S23
#[test]
fn what_a_program_writes_is_shown_without_its_secret_arguments() {
    let rig = Rig::new(
        "[tools.loud]\ndescription = \"x\"\nargs.token = { type = \"string\", secret = true }\n\
         command = [\"sh\", \"-c\", \"\"\"\ncat >secrets; cat secrets; cat secrets >&2; echo; echo all of it | tee /dev/stderr; exec sleep 600\"\"\"]\n",
    );
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let name = rig.start(&["loud", "token=hunter2-and-more"]);
    let shown = until_shown(&server, &format!("/tasks/{name}"), &cookie, |body| {
        body.matches("all of it").count() == 2
    });
    assert_eq!(shown.matches("[secret]").count(), 2, "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    for arguments in [
        &["tasks", &name][..],
        &["--json", "tasks", &name],
        &["top"],
        &["tasks"],
    ] {
        assert!(!rig.run(arguments).out.contains("hunter2"));
    }
}

#[test]
fn the_standard_error_of_a_server_stands_with_its_call() {
    const BEHIND: &str = r#"
while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"digs","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) echo 'digging at 12 m' >&2 ;;
    *'"notifications/'*) ;;
    *) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no"}}' ;;
  esac
done
"#;
    let rig = Rig::new("");
    let script = rig.file("behind.sh", BEHIND);
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[servers.mine]\ncommand = [\"sh\", \"{script}\"]\nrequired = true\n"
        ),
    );
    let server = rig.serve();
    let cookie = server.enter(&rig);
    until_shown(&server, "/", &cookie, |body| body.contains("1 tool"));
    let name = rig.start(&["digs"]);
    let shown = until_shown(&server, &format!("/tasks/{name}"), &cookie, |body| {
        body.contains("digging at 12 m")
    });
    assert!(shown.contains("<dd>mine</dd>"), "{shown}");
}

/// The page as soon as it is as the test says.
fn until_shown(server: &Server, path: &str, cookie: &str, done: impl Fn(&str) -> bool) -> String {
    let deadline = clock::monotonic() + PATIENCE;
    loop {
        let body = server.get(path, cookie).body;
        if done(&body) {
            return body;
        }
        assert!(clock::monotonic() < deadline, "{body}");
    }
}

/// Until the process that takes no notice of TERM is one: the kernel says so.
fn until_ignored(rig: &Rig) {
    let home = format!("HOME={}", rig.home.path().display());
    let deadline = clock::monotonic() + PATIENCE;
    let ignores = |process: &std::path::Path| {
        let text = |name| {
            let bytes = std::fs::read(process.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let status = text("status");
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        text("cmdline") == "sleep\x00601\0"
            && text("environ").contains(&home)
            && ignored.is_some_and(|mask| mask & (1 << 14) != 0)
    };
    while !std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| ignores(&entry.path()))
    {
        assert!(clock::monotonic() < deadline);
    }
}

/// S4
#[test]
fn only_a_form_of_the_page_itself_acts() {
    let (rig, server, name, cookie) = asking();
    let token = server.get("/", &cookie).hidden("form_token");
    let path = format!("/tasks/{name}/cancel");
    let own = origin(&server);
    let port = server.address.rsplit(':').next().unwrap();
    for (cookie, origin, token, status) in [
        ("", own.as_str(), token.as_str(), 401),
        ("longhaul_1=x", &own, &token, 401),
        (&cookie, "http://evil.example", &token, 403),
        (&cookie, "null", &token, 403),
        (&cookie, &format!("http://localhost:{port}"), &token, 403),
        (&cookie, &own, "", 403),
        (&cookie, &own, "guess", 403),
    ] {
        let reply = server.post(&path, cookie, origin, &[("form_token", token)]);
        assert_eq!(reply.status, status, "{cookie} {origin} {token}");
    }
    let task: Value = serde_json::from_str(&rig.run(&["--json", "tasks", &name]).out).unwrap();
    assert_eq!(task["state"], "asking");
}

/// S4: a name that was rebound to loopback reaches nothing.
#[test]
fn another_host_name_reaches_nothing() {
    let (_rig, server, _, cookie) = asking();
    let port = server.address.rsplit(':').next().unwrap();
    for host in [
        format!("evil.example:{port}"),
        format!("127.0.0.1.nip.io:{port}"),
        String::new(),
        "localhost".into(),
    ] {
        let reply = server.http(&format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        ));
        assert!(matches!(reply.status, 400 | 403), "{host}: {}", reply.status);
        assert!(!reply.body.contains("Which region?"));
    }
}

#[test]
fn a_link_works_once_and_without_one_nothing_is_shown() {
    let (rig, server, name, _) = asking();
    for path in ["/".to_owned(), format!("/tasks/{name}"), format!("/ask/{name}")] {
        let reply = server.get(&path, "");
        assert_eq!(reply.status, 401);
        assert!(!reply.body.contains("region"), "{}", reply.body);
    }
    let link = rig.run(&["page", &name]).out;
    let path = link.trim().split_once(&server.address).unwrap().1.to_owned();
    let opened = server.get(&path, "");
    assert_eq!(
        (opened.status, opened.header("location")),
        (303, format!("/ask/{name}").as_str())
    );
    let set = opened.header("set-cookie").to_owned();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict"),
        "{set}"
    );
    assert_eq!(server.get(&path, "").status, 401);
}

/// S12
#[test]
fn every_reply_carries_the_headers_that_keep_scripts_out() {
    let (_rig, server, name, cookie) = asking();
    let paths = [
        "/",
        "/style.css",
        "/open?link=x",
        &format!("/ask/{name}"),
        &format!("/tasks/{name}"),
        "/tasks/zzzzzz",
    ];
    for (path, cookie) in paths
        .iter()
        .flat_map(|path| [(path, cookie.as_str()), (path, "")])
    {
        let reply = server.get(path, cookie);
        let policy = reply.header("content-security-policy").to_owned();
        for part in [
            "default-src 'none'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(
            !policy.contains("script-src") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("cache-control"), "no-store");
    }
}

/// S12: hostile text in every field that a tool can fill in comes out as text.
#[test]
fn text_from_a_tool_never_becomes_markup() {
    let rig = Rig::new("");
    let script = rig.file(
        "hostile.sh",
        "longhaul progress 1 2 \"$1\"\nlonghaul ask --text \"$1\" --form \"$2\" >/dev/null\nprintf '%s' \"$1\"\n",
    );
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.hostile]\ndescription = \"x\"\nconcurrency = 4\n\
             command = [\"sh\", \"{script}\", \"{{text}}\", \"{{form}}\"]\nargs.text = \"string\"\nargs.form = \"string\"\n"
        ),
    );
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let mut asked = 0;
    for (at, payload) in payloads().iter().enumerate() {
        let form = json!({"type": "object", "properties": {
            "a": {"type": "string", "title": payload, "description": payload, "default": payload},
            "b": {"type": "string", "oneOf": [{"const": payload, "title": payload}]},
            "c": {"type": "array", "title": payload, "items": {"anyOf": [{"const": payload, "title": payload}]}},
        }});
        let form = rig.file(&format!("form{at}.json"), &form.to_string());
        let name = rig.start(&["hostile", &format!("text={payload}"), &format!("form={form}")]);
        let task = rig.until(&name, |task| task["state"] == "asking" || task["state"] == "done");
        let pages = ["/".to_owned(), format!("/ask/{name}"), format!("/tasks/{name}")];
        for path in &pages {
            is_only_ours(&server.get(path, &cookie), payload);
        }
        if task["state"] == "asking" {
            asked += 1;
            assert_eq!(rig.run(&["answer", &name, "--decline"]).code, 0);
            rig.until_state(&name, "done");
        }
        is_only_ours(&server.get(&pages[2], &cookie), payload);
    }
    assert_eq!(asked, payloads().len(), "every payload was shown in a form");
}

/// Reads the page as a browser's tokenizer does: every tag and attribute must be one that the page itself writes.
fn is_only_ours(page: &Http, payload: &str) {
    const TAGS: &str = "a blockquote body button caption code dd details div dl dt fieldset footer form h1 h2 head header html \
        input label legend li link main meta option p pre progress section select span strong style summary table \
        tbody td textarea th thead title tr ul";
    const ATTRIBUTES: &str = "action aria-describedby aria-invalid aria-label aria-labelledby autocomplete charset \
        checked class content data-label data-state for formnovalidate href http-equiv id lang max maxlength method \
        min minlength name rel required role rows scope selected step tabindex target type value";
    let (tags, attributes): (BTreeSet<&str>, BTreeSet<&str>) = (
        TAGS.split_whitespace().collect(),
        ATTRIBUTES.split_whitespace().collect(),
    );
    assert!(matches!(page.status, 200 | 404), "{}", page.head);
    let body = page
        .body
        .strip_prefix("<!DOCTYPE html>")
        .expect("a page begins with its doctype");
    let mut rest = body;
    while let Some((_, after)) = rest.split_once('<') {
        let after = after.strip_prefix('/').unwrap_or(after);
        let end = after
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        assert!(
            tags.contains(&after[..end]),
            "{payload:?} became the tag `{}`",
            &after[..end]
        );
        rest = after[end..].trim_start();
        while !rest.starts_with('>') {
            let end = rest.find(['=', '>', ' ']).expect("a tag ends");
            let name = &rest[..end];
            assert!(
                attributes.contains(name),
                "{payload:?} became the attribute `{name}`"
            );
            rest = rest[end..].trim_start();
            if let Some(value) = rest.strip_prefix("=\"") {
                let (value, after) = value.split_once('"').expect("a value ends");
                let local = value.starts_with('/') || value.starts_with('#');
                assert!(
                    name != "href" && name != "action" || local,
                    "{payload:?} became the address `{value}`"
                );
                rest = after.trim_start();
            }
        }
    }
}

/// Sixty ways to break out of text, attributes, and text areas.
fn payloads() -> Vec<String> {
    let bodies = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "<iframe srcdoc='<script>1</script>'>",
    ];
    let openings = [
        "",
        "\"",
        "'",
        "\">",
        "'>",
        "</textarea>",
        "</pre>",
        "</title>",
        "x-->",
        "]]>",
        "&lt;",
        "\" onfocus=alert(1) autofocus x=\"",
    ];
    openings
        .iter()
        .flat_map(|opening| bodies.iter().map(move |body| format!("{opening}{body}")))
        .collect()
}
