//! From `tasks/cancel` to the moment at which the tool's child process is really gone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    load::{Subject, round},
    machine,
    wire::Begun,
};

/// After this long it counts as never.
const NEVER: Duration = Duration::from_secs(10);
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// Cancels so many tasks, one after the other. What a server leaves running is ended here.
pub async fn measure(subject: &Subject, samples: u64) -> Value {
    let (mut gone, mut acknowledged, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut never = 0;
    for sample in 0..samples {
        let mark = format!("longhaul-bench-{}-{sample}", std::process::id());
        match one(subject, &mark).await {
            Ok(seen) => {
                acknowledged.push(seen.acknowledged_ms);
                match seen.gone_ms {
                    Some(time) => gone.push(time),
                    None => never += 1,
                }
            }
            Err(why) => errors.push(why),
        }
        machine::marked(&mark).into_iter().for_each(machine::end);
        // Two are enough to know it.
        if never == 2 {
            break;
        }
    }
    json!({
        "gone_ms": gone, "never": never, "acknowledged_ms": acknowledged,
        "limit_ms": NEVER.as_millis(), "errors": errors,
    })
}

struct Seen {
    acknowledged_ms: f64,
    gone_ms: Option<f64>,
}

async fn one(subject: &Subject, mark: &str) -> Result<Seen, String> {
    let mut caller = subject.caller();
    let arguments = format!(r#"{{"seconds":86400,"mark":"{mark}"}}"#);
    let Begun::Task { id, .. } = caller.begin("child", &arguments).await? else {
        return Err("no task but a result".to_owned());
    };
    let begun = Instant::now();
    let children = loop {
        let children = machine::marked(mark);
        if !children.is_empty() {
            break children;
        }
        if begun.elapsed() > START_MAX {
            return Err("the tool started no child process".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let from = Instant::now();
    caller.cancel(&id).await?;
    let acknowledged_ms = millis(from);
    loop {
        if children.iter().all(|child| machine::ended(*child)) {
            return Ok(Seen {
                acknowledged_ms,
                gone_ms: Some(millis(from)),
            });
        }
        if from.elapsed() > NEVER {
            return Ok(Seen {
                acknowledged_ms,
                gone_ms: None,
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn millis(from: Instant) -> f64 {
    round(from.elapsed().as_secs_f64() * 1000.0)
}
