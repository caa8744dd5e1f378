//! What a command prints or writes, as the result of its call.

use longhaul_core::Outcome;
use longhaul_gateway::config::Bytes;
use serde_json::json;

use super::{Rig, script, text};

// E-4
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_no_reader_can_hold_makes_an_error_result() {
    for kind in ["json", "mcp"] {
        let rig = Rig::new(&script(
            "echo '{\"content\":[],\"a\":[1e400]}'",
            &format!("result = \"{kind}\""),
        ))
        .await;
        let (result, is_error) = rig.result("t", json!({})).await;
        assert!(is_error);
        assert_eq!(
            text(&result),
            "`sh` printed a number at `/a/0` that is too large for any reader (`not_finite`)."
        );
        assert_eq!(result.get("structuredContent"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_printed_result_is_checked_block_by_block() {
    for (block, why) in [
        ("{\"type\":\"evil\"}", "has the unknown type `evil`"),
        ("{\"type\":\"text\"}", "of the type `text` has no text `text`"),
        (
            "{\"type\":\"text\",\"text\":7}",
            "of the type `text` has no text `text`",
        ),
        (
            "{\"type\":\"image\",\"data\":\"\"}",
            "of the type `image` has no text `mimeType`",
        ),
        (
            "{\"type\":\"resource_link\",\"uri\":\"x:\"}",
            "of the type `resource_link` has no text `name`",
        ),
        (
            "{\"type\":\"resource\"}",
            "of the type `resource` has no `resource` object",
        ),
        (
            "{\"type\":\"resource\",\"resource\":{\"uri\":\"x:\"}}",
            "of the type `resource` has neither a `text` nor a `blob`",
        ),
        ("{}", "has no `type`"),
    ] {
        let good = "{\"type\":\"text\",\"text\":\"x\"}";
        let rig = Rig::new(&script(
            &format!("echo '{{\"content\":[{good},{block}]}}'"),
            "result = \"mcp\"",
        ))
        .await;
        assert_eq!(
            rig.error("t", json!({})).await,
            format!("`sh` printed a result in which block 1 {why}.")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_printed_result_says_nothing_about_tasks_and_nothing_in_reserved_names() {
    let printed = json!({
        "content": [{ "type": "text", "text": "x", "annotations": { "priority": 1 } }],
        "vendor": 7, "taskId": "x", "resultType": "task", "status": "working", "ttlMs": 5,
        "_meta": {
            "io.modelcontextprotocol/serverInfo": 7, "com.mcp.tools/x": 1, "dev.mcp/y": 2,
            "com.example/kept": 3, "kept": 4,
        },
    });
    let rig = Rig::new(&script(&format!("echo '{printed}'"), "result = \"mcp\"")).await;
    let (result, is_error) = rig.result("t", json!({})).await;
    assert!(!is_error, "{result}");
    assert_eq!(
        result,
        json!({
            "content": [{ "type": "text", "text": "x", "annotations": { "priority": 1 } }],
            "vendor": 7,
            "_meta": { "com.example/kept": 3, "kept": 4 },
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_output_keeps_its_beginning_and_its_end() {
    let toml = script("echo BEGIN; seq 1 20000; echo END", "");
    let rig = Rig::with(&toml, |host| host.limits.result_max = Bytes(8192)).await;
    let text = rig.text("t", json!({})).await;
    assert!(
        text.starts_with("BEGIN\n1\n2\n") && text.ends_with("20000\nEND\n"),
        "{text}"
    );
    assert!(
        text.contains("bytes are left out here: the output is larger than"),
        "{text}"
    );
    assert!(text.len() < 8192);
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_output_is_a_resource_and_a_large_one_only_its_size() {
    let rig = Rig::new(&script("printf '\\377\\000\\001'", "")).await;
    let (result, _) = rig.result("t", json!({})).await;
    assert_eq!(result["content"][0]["resource"]["blob"], "/wAB");
    let rig = Rig::with(&script("head -c 100000 /dev/zero", ""), |host| {
        host.limits.file_max = Bytes(1000)
    })
    .await;
    let text = rig.text("t", json!({})).await;
    assert!(
        text.starts_with("The output is 100000 bytes that are no UTF-8 text"),
        "{text}"
    );
}

// A-88, B-54
#[tokio::test(flavor = "multi_thread")]
async fn json_is_structured_content_and_must_fit_its_schema() {
    let schema = "result = \"json\"\noutput_schema = { type = \"object\", required = [\"n\"] }";
    let rig = Rig::new(&script(
        "printf '{\"n\": 12345678901234567890123, \"b\": 1}'",
        schema,
    ))
    .await;
    let id = rig.call("t", json!({})).await;
    let Outcome::Returned {
        body,
        is_error: false,
    } = rig.outcome(id).await
    else {
        panic!("a result")
    };
    let bytes = String::from_utf8(body.bytes().expect("read").to_vec()).expect("UTF-8");
    assert!(
        bytes.contains(r#""structuredContent":{"n": 12345678901234567890123, "b": 1}"#),
        "{bytes}"
    );

    let rig = Rig::new(&script("printf '{\"m\":1}'", schema)).await;
    let why = rig.error("t", json!({})).await;
    assert_eq!(
        why,
        "What `sh` printed does not fit the tool's output schema:\n: \"n\" is a required property"
    );
    let rig = Rig::new(&script("printf '{\"a\":1,\"a\":2}'", schema)).await;
    assert!(
        rig.error("t", json!({}))
            .await
            .starts_with("`sh` must print JSON, and did not: duplicate member")
    );
    let rig = Rig::new(&script("echo no", schema)).await;
    assert!(
        rig.error("t", json!({}))
            .await
            .starts_with("`sh` must print JSON, and did not: ")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_result_or_error_is_passed_on() {
    let mcp = "result = \"mcp\"";
    let whole = r#"{"resultType":"complete","content":[{"type":"text","text":"hi","x":1}],"isError":false}"#;
    let rig = Rig::new(&script(&format!("printf '%s' '{whole}'"), mcp)).await;
    let (result, _) = rig.result("t", json!({})).await;
    assert_eq!(
        result,
        json!({ "content": [{ "type": "text", "text": "hi", "x": 1 }], "isError": false })
    );
    let rig = Rig::new(&script(&format!("printf '%s' '{whole}'; exit 1"), mcp)).await;
    assert_eq!(rig.result("t", json!({})).await.0["isError"], true);

    let rig = Rig::new(&script(
        r#"printf '{"code":-32000,"message":"no","data":{"a":1}}'"#,
        mcp,
    ))
    .await;
    let id = rig.call("t", json!({})).await;
    let Outcome::Errored { body } = rig.outcome(id).await else {
        panic!("an error")
    };
    assert_eq!(
        body.bytes().expect("read"),
        br#"{"code":-32000,"message":"no","data":{"a":1}}"#
    );

    let rig = Rig::new(&script("printf '{}'", mcp)).await;
    assert_eq!(
        rig.error("t", json!({})).await,
        "`sh` printed a result without a `content` list of objects."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_embedded_or_named_and_links_are_not_followed() {
    let rig = Rig::with(
        &script(
            "mkdir -p out/deep; echo hi >out/a.txt; echo no >out/b.log; head -c 5000 /dev/zero >out/deep/c.txt; ln -s /etc/passwd out/d.txt",
            "result = \"files\"\nfiles = [\"out/**/*.txt\"]",
        ),
        |host| host.limits.file_max = Bytes(1000),
    )
    .await;
    let (result, is_error) = rig.result("t", json!({})).await;
    assert!(!is_error, "{result}");
    assert_eq!(text(&result), "2 files");
    assert_eq!(result["content"][1]["resource"]["text"], "hi\n");
    assert_eq!(result["content"][2]["type"], "resource_link");
    assert_eq!(result["content"][2]["name"], "out/deep/c.txt");
    assert_eq!(result["content"][2]["size"], 5000);
    assert_eq!(result["content"].as_array().map(Vec::len), Some(3));

    let rig = Rig::new(&script("true", "result = \"files\"\nfiles = [\"*.pdf\"]")).await;
    assert_eq!(
        rig.error("t", json!({})).await,
        "`sh` left no file that matches *.pdf."
    );
}
