//! What is listed when commands and several servers offer tools, under which names, and what a task's tool is called
//! by later.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use longhaul_core::Body;
use longhaul_engine::tool::{Call, Context, Running, Tool as Work, Tools as _};
use longhaul_gateway::{
    catalog::{Beside, Catalog, Entry},
    config::{Prefix, Toolset},
    view::{self, ServerTool},
};
use longhaul_mcp::reply::{Relays, TaskSupport};

use crate::support::{entry, script, text};

fn tool(name: &str) -> Entry {
    entry(name, TaskSupport::Optional, script(|_, _| async { text("done") }))
}

fn listed(catalog: &Catalog) -> Vec<String> {
    let offered = catalog.now();
    offered
        .entries()
        .iter()
        .map(|entry| entry.listing.name.clone())
        .collect()
}

fn two(first: Prefix, second: Prefix) -> Catalog {
    Catalog::new(vec![tool("build")]).with_servers([("git".to_owned(), first), ("hub".to_owned(), second)])
}

#[test]
fn names_begin_with_their_server_only_where_two_are_the_same() {
    let catalog = two(Prefix::Auto, Prefix::Auto);
    catalog.offer("hub", vec![tool("log"), tool("open")], Beside::default());
    assert_eq!(listed(&catalog), ["build", "log", "open"]);
    catalog.offer("git", vec![tool("log"), tool("build")], Beside::default());
    assert_eq!(
        listed(&catalog),
        ["build", "git__log", "git__build", "hub__log", "open"]
    );
    catalog.offer("git", Vec::new(), Beside::default());
    assert_eq!(listed(&catalog), ["build", "log", "open"]);
}

#[test]
fn a_server_s_names_begin_with_it_always_or_never_where_it_says_so() {
    let catalog = two(Prefix::Always, Prefix::Never);
    catalog.offer("git", vec![tool("log")], Beside::default());
    catalog.offer("hub", vec![tool("log"), tool("build")], Beside::default());
    assert_eq!(listed(&catalog), ["build", "git__log", "log"]);
}

#[test]
fn a_name_is_shared_only_with_names_that_are_listed_as_they_are() {
    let catalog = two(Prefix::Auto, Prefix::Always);
    catalog.offer("git", vec![tool("log")], Beside::default());
    catalog.offer("hub", vec![tool("log")], Beside::default());
    assert_eq!(listed(&catalog), ["build", "log", "hub__log"]);
}

#[test]
fn no_server_takes_the_name_of_another_s_tool() {
    for prefix in [Prefix::Auto, Prefix::Never] {
        let catalog = two(prefix, Prefix::Auto);
        catalog.offer("git", vec![tool("hub__log"), tool("log")], Beside::default());
        catalog.offer("hub", vec![tool("log")], Beside::default());
        let names = listed(&catalog);
        assert!(names.contains(&"git__hub__log".to_owned()), "{names:?}");
        if names.contains(&"hub__log".to_owned()) {
            let offered = catalog.now();
            let own = offered.entry("hub__log").expect("it is listed");
            assert_eq!(own.listing.name, "hub__log");
        }
    }
}

#[test]
fn no_server_takes_the_name_of_our_own_helper() {
    let catalog = two(Prefix::Auto, Prefix::Never);
    catalog.offer("git", vec![tool("longhaul_wait")], Beside::default());
    catalog.offer("hub", vec![tool("longhaul_wait")], Beside::default());
    assert_eq!(listed(&catalog), ["build", "git__longhaul_wait"]);
    assert_eq!(catalog.now().refused_of("hub"), ["longhaul_wait"]);
}

#[test]
fn a_task_is_looked_for_under_every_name_that_its_tool_may_have_had() {
    let catalog = two(Prefix::Auto, Prefix::Auto);
    catalog.offer("git", vec![tool("log")], Beside::default());
    assert!(catalog.find("log").is_some() && catalog.find("git__log").is_some());
    assert!(catalog.now().entry("git__log").is_none(), "it is not listed so");
    catalog.offer("hub", vec![tool("log")], Beside::default());
    assert!(catalog.now().entry("log").is_none(), "it could be either");
    for name in ["build", "log", "git__log", "hub__log"] {
        assert!(catalog.find(name).is_some() && catalog.names().contains(&name.to_owned()));
    }
    assert!(catalog.find("open").is_none());
}

/// A tool that may run so many times at once.
struct Limited(usize);

impl Work for Limited {
    fn run(&self, _: Call, _: Context) -> Running {
        Box::pin(async { text("done") })
    }

    fn concurrency_max(&self) -> usize {
        self.0
    }
}

#[test]
fn no_tool_lifts_the_concurrency_of_another_of_its_name() {
    let limited = |name: &str, max| Entry {
        work: Arc::new(Limited(max)),
        ..tool(name)
    };
    let servers = ["git", "hub"].map(|server| (server.to_owned(), Prefix::Auto));
    let catalog = Catalog::new(vec![limited("deploy", 1)]).with_servers(servers);
    catalog.offer("git", vec![limited("deploy", 16)], Beside::default());
    catalog.offer("hub", vec![limited("deploy", 4)], Beside::default());
    let context = |server: &str| {
        let context = view::Context {
            server_tool: Some(ServerTool {
                server: server.to_owned(),
                tool: "deploy".to_owned(),
            }),
            ..view::Context::default()
        };
        Body::new(&serde_json::to_vec(&context).expect("JSON"))
    };
    let slots = |name: &str, context: &Body| catalog.slots_of(name, context).expect("it is there");
    let own = slots("deploy", &Body::new(b"{}"));
    let (git, hub) = (slots("deploy", &context("git")), slots("deploy", &context("hub")));
    assert_eq!((own.max, git.max, hub.max), (1, 16, 4));
    assert!(own.of != git.of && own.of != hub.of && git.of != hub.of);
    assert_eq!(catalog.slots("deploy"), [own, git.clone(), hub]);
    // The same tool counts once, whatever its task was called.
    assert_eq!(catalog.slots("git__deploy"), [git]);
}

#[tokio::test]
async fn a_change_is_told() {
    let catalog = two(Prefix::Auto, Prefix::Auto);
    let mut changes = catalog.changes();
    assert!(!changes.has_changed().expect("it is there"));
    catalog.offer("git", vec![tool("log")], Beside::default());
    changes.changed().await.expect("it is there");
    assert_eq!(changes.borrow_and_update().entries().len(), 2);
    let before = catalog.now().versions();
    catalog.offer("git", vec![tool("log")], Beside::default());
    assert_eq!(catalog.now().versions(), before, "the same tools are no change");
    let prompts = Beside {
        prompts: [1; 32],
        ..Beside::default()
    };
    catalog.offer("git", vec![tool("log")], prompts);
    let after = catalog.now().versions();
    assert!(
        after.prompts != before.prompts && after.tools == before.tools && after.resources == before.resources
    );
    changes.borrow_and_update();
    catalog.offer("unknown", vec![tool("log")], Beside::default());
    assert!(!changes.has_changed().expect("it is there"));
}

/// The listed names of a toolset's tools.
fn of(catalog: &Catalog, toolset: &str) -> Vec<String> {
    let selection = catalog.selection(toolset).expect("it is configured");
    let offered = catalog.now();
    let tools = offered.of(&selection).entries().iter();
    tools.map(|entry| entry.listing.name.clone()).collect()
}

fn with_toolset(tools: &[&str], servers: &[&str], exclude: &[&str]) -> Catalog {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    two(Prefix::Auto, Prefix::Auto).with_toolsets([Toolset {
        name: "review".to_owned(),
        tools: texts(tools),
        servers: texts(servers),
        exclude: texts(exclude),
        ..Toolset::default()
    }])
}

#[test]
fn a_tool_is_in_a_toolset_by_its_listed_name_or_with_its_server_s() {
    let catalog = with_toolset(&["build", "git__l*", "open", "log"], &[], &[]);
    assert_eq!(of(&catalog, "review"), ["build"]);
    catalog.offer("git", vec![tool("log"), tool("reset")], Beside::default());
    catalog.offer("hub", vec![tool("open")], Beside::default());
    assert_eq!(of(&catalog, "review"), ["build", "log", "open"]);
    // The name that it shares from now on names neither; the longer one names it as before.
    catalog.offer("hub", vec![tool("open"), tool("log")], Beside::default());
    assert_eq!(of(&catalog, "review"), ["build", "git__log", "open"]);
    assert!(catalog.selection("another").is_none());
}

#[test]
fn a_tool_that_is_left_out_stays_out_whatever_its_name_becomes() {
    let catalog = with_toolset(&["*"], &["git"], &["reset", "hub__*", "build"]);
    catalog.offer("git", vec![tool("log"), tool("reset")], Beside::default());
    assert_eq!(of(&catalog, "review"), ["log"]);
    catalog.offer("hub", vec![tool("reset"), tool("open")], Beside::default());
    assert_eq!(of(&catalog, "review"), ["log"]);
    assert!(listed(&catalog).contains(&"git__reset".to_owned()));
}

#[test]
fn a_toolset_changes_with_its_own_lists_only() {
    let catalog = with_toolset(&["hub__open"], &["git"], &[]);
    let selection = catalog.selection("review").expect("it is configured");
    let versions = || catalog.now().of(&selection).versions();
    let first = versions();
    let beside = |count| Beside {
        resources: [count; 32],
        ..Beside::default()
    };
    catalog.offer("hub", vec![tool("close")], beside(1));
    assert_eq!(versions(), first);
    catalog.offer("hub", vec![tool("close"), tool("open")], beside(2));
    let second = versions();
    assert_eq!(
        (second.tools, second.resources),
        (first.tools + 1, first.resources)
    );
    catalog.offer("git", Vec::new(), beside(3));
    assert_eq!(versions().resources, second.resources + 1);
}

#[test]
fn a_toolset_is_told_that_its_last_prompts_went() {
    let catalog = with_toolset(&[], &["git"], &[]);
    let selection = catalog.selection("review").expect("it is configured");
    let prompts = || catalog.now().of(&selection).versions().prompts;
    let beside = Beside {
        relays: Relays {
            prompts: true,
            ..Relays::default()
        },
        prompts: [1; 32],
        ..Beside::default()
    };
    let first = prompts();
    catalog.offer("git", Vec::new(), beside);
    assert_eq!(prompts(), first + 1);
    catalog.offer("git", Vec::new(), Beside::default());
    assert_eq!(prompts(), first + 2);
    // It has none, and those of another are not its own.
    catalog.offer("hub", Vec::new(), beside);
    assert_eq!(prompts(), first + 2);
}

#[test]
fn what_a_toolset_names_in_vain_is_told_to_whoever_wrote_it() {
    let catalog = with_toolset(&["build", "nothing", "git__*"], &["hub"], &["log"]);
    let found = catalog.toolsets().remove(0);
    assert_eq!((found.tools, found.servers), (1, vec!["hub".to_owned()]));
    assert_eq!(found.unmatched, ["nothing", "git__*", "log"]);
    catalog.offer("git", vec![tool("log")], Beside::default());
    let found = catalog.toolsets().remove(0);
    assert_eq!((found.tools, found.unmatched), (1, vec!["nothing".to_owned()]));
}

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_tool_that_is_not_offered_is_warned_of_once() {
    let warnings = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
        let catalog = two(Prefix::Never, Prefix::Never);
        catalog.offer("git", vec![tool("build")], Beside::default());
        assert_eq!(warnings.load(Ordering::Relaxed), 1);
        for other in ["log", "open", "log"] {
            catalog.offer("hub", vec![tool(other)], Beside::default());
        }
        assert_eq!(warnings.load(Ordering::Relaxed), 1);
        assert_eq!(catalog.now().refused_of("git"), ["build"]);
    });
}
