//! Whether a tool result that a program printed is one, and what in it is not the program's to say.
//!
//! `result` calls it for `result = "mcp"`. It adds nothing.

use longhaul_mcp::frame::{Obj, Raw};

/// Members that say something about a task: the edge of each generation says them by itself.
const OF_TASKS: &[&str] = &[
    "resultType",
    "task",
    "taskId",
    "status",
    "statusMessage",
    "createdAt",
    "lastUpdatedAt",
    "ttl",
    "ttlMs",
    "pollInterval",
    "pollIntervalMs",
    "inputRequests",
    "requestState",
    "result",
    "error",
];

/// Checks `content`.
///
/// # Errors
/// What is wrong, to stand after "a result".
pub(super) fn check(result: &Obj) -> Result<(), String> {
    let blocks = result
        .get::<Vec<Obj>>("content")
        .ok_or("without a `content` list of objects")?;
    for (index, block) in blocks.iter().enumerate() {
        check_block(block).map_err(|why| format!("in which block {index} {why}"))?;
    }
    Ok(())
}

fn check_block(block: &Obj) -> Result<(), String> {
    let kind = block.get::<String>("type").ok_or("has no `type`")?;
    let required: &[&str] = match kind.as_str() {
        "text" => &["text"],
        "image" | "audio" => &["data", "mimeType"],
        "resource_link" => &["uri", "name"],
        "resource" => {
            let resource = block
                .obj("resource")
                .ok_or("of the type `resource` has no `resource` object")?;
            texts(&resource, &kind, &["uri"])?;
            let contents = ["text", "blob"].map(|name| resource.get::<String>(name).is_some());
            if contents == [false, false] {
                return Err("of the type `resource` has neither a `text` nor a `blob`".to_owned());
            }
            return Ok(());
        }
        _ => {
            return Err(format!(
                "has the unknown type `{}`",
                longhaul_mcp::clean(&kind, 60)
            ));
        }
    };
    texts(block, &kind, required)
}

fn texts(object: &Obj, kind: &str, names: &[&str]) -> Result<(), String> {
    match names.iter().find(|name| object.get::<String>(name).is_none()) {
        Some(name) => Err(format!("of the type `{kind}` has no text `{name}`")),
        None => Ok(()),
    }
}

/// Takes out the members of tasks and the names in `_meta` that are reserved for the protocol. What a vendor added
/// stays.
pub(super) fn strip(result: &mut Obj) {
    result
        .0
        .retain(|(name, _)| !OF_TASKS.contains(&name.unescaped().as_ref()));
    let Some(meta) = result.raw("_meta").cloned() else {
        return;
    };
    match meta.read::<Obj>() {
        Ok(mut meta) => {
            let before = meta.0.len();
            meta.0.retain(|(name, _)| !is_reserved(&name.unescaped()));
            if meta.0.is_empty() {
                result.take("_meta");
            } else if meta.0.len() < before {
                result.set("_meta", &meta.to_raw());
            }
        }
        Err(_) => drop::<Option<Raw>>(result.take("_meta")),
    }
}

/// Whether a name's prefix has `modelcontextprotocol` or `mcp` as its second label.
fn is_reserved(name: &str) -> bool {
    let Some((prefix, _)) = name.split_once('/') else {
        return false;
    };
    let second = prefix.split('.').nth(1).unwrap_or_default().to_ascii_lowercase();
    matches!(second.as_str(), "modelcontextprotocol" | "mcp")
}
