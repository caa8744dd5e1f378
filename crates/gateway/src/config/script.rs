//! Finds placeholders inside program text: `sh -c "rm {path}"` would run whatever the value says (S6).
//!
//! Called by `tool` when a command is checked. It looks at every item, so that `env`, `nice`, `find -exec` and
//! the like cannot hide an interpreter.

use super::{
    problem::{At, Problems},
    template::{Item, Part, Template},
};

/// How one interpreter takes program text.
struct Interpreter {
    /// Names, without version numbers.
    names: &'static [&'static str],
    /// Letters that make a short option take program text, alone or last among others (`-c`, `-lc`).
    short: &'static [char],
    /// Long options that take program text.
    long: &'static [&'static str],
    /// What stands before the values, and how the program text then names the first.
    safe: (&'static str, &'static str),
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"],
        short: &['c'],
        long: &[],
        safe: ("\"sh\", ", "\\\"$1\\\""),
    },
    Interpreter {
        names: &["fish"],
        short: &['c'],
        long: &["--command"],
        safe: ("", "$argv[1]"),
    },
    Interpreter {
        names: &["python", "pypy"],
        short: &['c'],
        long: &[],
        safe: ("", "sys.argv[1]"),
    },
    Interpreter {
        names: &["perl"],
        short: &['e', 'E'],
        long: &[],
        safe: ("", "$ARGV[0]"),
    },
    Interpreter {
        names: &["ruby"],
        short: &['e'],
        long: &[],
        safe: ("", "ARGV[0]"),
    },
    Interpreter {
        names: &["node", "nodejs", "bun", "deno"],
        short: &['e', 'p'],
        long: &["--eval", "--print", "eval"],
        safe: ("", "process.argv[1]"),
    },
    Interpreter {
        names: &["php"],
        short: &['r'],
        long: &["--run"],
        safe: ("\"--\", ", "$argv[1]"),
    },
    Interpreter {
        names: &["lua", "luajit"],
        short: &['e'],
        long: &[],
        safe: ("", "arg[1]"),
    },
    Interpreter {
        names: &["pwsh", "powershell"],
        short: &['c'],
        long: &["-Command"],
        safe: ("", "$args[0]"),
    },
];

/// Reports every placeholder that stands inside program text.
pub(super) fn check(template: &Template, problems: &mut Problems) {
    let items: Vec<(&At, &Item)> = template
        .items
        .iter()
        .flat_map(|(at, item)| flat(at, item))
        .collect();
    for (index, (_, item)) in items.iter().enumerate() {
        let Some(program) = item.literal() else { continue };
        if let Some(interpreter) = interpreter(&program) {
            check_one(&program, interpreter, &items[index + 1..], problems);
        }
    }
}

fn flat<'a>(at: &'a At, item: &'a Item) -> Vec<(&'a At, &'a Item)> {
    match item {
        Item::Group(items) => items.iter().map(|item| (at, item)).collect(),
        Item::One(_) | Item::Each(_) | Item::When { .. } => vec![(at, item)],
    }
}

fn interpreter(program: &str) -> Option<&'static Interpreter> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS
        .iter()
        .find(|interpreter| interpreter.names.contains(&name))
}

fn check_one(program: &str, interpreter: &Interpreter, rest: &[(&At, &Item)], problems: &mut Problems) {
    let mut text_next: Option<String> = None;
    let mut value_next = false;
    for (at, item) in rest {
        if let Some(option) = text_next.take() {
            // A shell takes further options between `-c` and its text.
            if item.literal().is_some_and(|text| text.starts_with('-')) {
                text_next = Some(option);
                continue;
            }
            if !item.names().is_empty() {
                problems.add(at, complaint(program, &option, item, interpreter));
            }
            continue;
        }
        let (Item::One(parts), Some(Part::Text(first))) = (item, first_part(item)) else {
            if matches!(item, Item::One(_)) && !value_next {
                return;
            }
            value_next = false;
            continue;
        };
        let is_option = first.starts_with(['-', '+']) || interpreter.long.contains(&first.as_str());
        if !is_option && !value_next {
            // The first argument that is neither an option nor an option's value ends the interpreter's options.
            return;
        }
        value_next = is_option && VALUED.contains(&first.as_str());
        let (takes, inline) = if is_option {
            takes_text(first, interpreter)
        } else {
            (false, false)
        };
        if takes && (inline || parts.len() > 1) && !item.names().is_empty() {
            problems.add(at, complaint(program, first, item, interpreter));
        } else if takes && (!inline || interpreter.names.contains(&"sh")) {
            // To a shell `-ce` is two options.
            text_next = Some(first.clone());
        }
    }
}

/// Options of interpreters that take their value from the next item, and that are not program text.
const VALUED: &[&str] = &[
    "-o",
    "+o",
    "-O",
    "+O",
    "-W",
    "-X",
    "-I",
    "-M",
    "--rcfile",
    "--init-file",
    "--require",
];

fn first_part(item: &Item) -> Option<&Part> {
    match item {
        Item::One(parts) => parts.first(),
        Item::Each(_) | Item::When { .. } | Item::Group(_) => None,
    }
}

/// Whether the option takes program text, and whether the text is in the same item.
fn takes_text(option: &str, interpreter: &Interpreter) -> (bool, bool) {
    let name = option.split('=').next().unwrap_or(option);
    if interpreter.long.contains(&name) {
        return (true, option.contains('='));
    }
    if option.starts_with("--") {
        return (false, false);
    }
    match option[1..].find(interpreter.short) {
        Some(letter) => (true, option.len() > letter + 2),
        None => (false, false),
    }
}

fn complaint(program: &str, option: &str, item: &Item, interpreter: &Interpreter) -> String {
    let names = item.names();
    let name = names.first().copied().unwrap_or("name");
    let option = option.split('=').next().unwrap_or(option);
    let (before, first) = interpreter.safe;
    format!(
        "`{{{name}}}` stands inside the program text of `{program} {option}`, where a value would run as code; \
         pass it beside the text: [\"{program}\", \"{option}\", \"… {first} …\", {before}\"{{{name}}}\"]"
    )
}
