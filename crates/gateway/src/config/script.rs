//! Finds values that would be run as program text, or choose what is run: `sh -c "rm {path}"`, `awk {p}`,
//! `env {p}` (S6).
//!
//! Called by `tool` when a command is checked. It reads the command as the programs in it would, through `env`,
//! `nice`, `find -exec` and the like. What is not in `programs` passes.

mod programs;

use std::collections::BTreeSet;

use self::programs::{Operands, Program};
use super::{
    problem::{At, Problems},
    template::{self, Item, Part, Template},
};

/// The setting that switches this check off.
const OPT_OUT: &str = "or say `allow_program_text = true` where that is what the tool is for";

/// A value's way into the program.
struct Input<'a> {
    /// Whether every value that the name can have stands in the configuration.
    listed: &'a dyn Fn(&str) -> bool,
    /// The place of `stdin`, when values stand in it.
    stdin: Option<&'a At>,
}

/// Reports every value that would be program text. `listed` says whether a name's values are all in the
/// configuration; `stdin` is the place of a `stdin` that has values in it.
pub(super) fn check(
    template: &Template,
    listed: &dyn Fn(&str) -> bool,
    stdin: Option<&At>,
    problems: &mut Problems,
) {
    let items: Vec<Piece> = template
        .items
        .iter()
        .flat_map(|(at, item)| flat(at, item))
        .collect();
    let mut walk = Walk {
        input: Input { listed, stdin },
        seen: BTreeSet::new(),
        problems,
    };
    walk.command(&items, true);
    // A wrapper that is not known must not hide a language.
    for (index, piece) in items.iter().enumerate().skip(1) {
        let program = piece.item.literal().and_then(|text| programs::of(&text));
        let shells_and_such = |program: &Program| program.language && !program.names.contains(&"Rscript");
        if program.is_some_and(shells_and_such) {
            walk.command(&items[index..], false);
        }
    }
}

/// An item and its place.
#[derive(Clone)]
struct Piece {
    at: At,
    item: Item,
}

fn flat(at: &At, item: &Item) -> Vec<Piece> {
    let piece = |item: &Item| Piece {
        at: at.clone(),
        item: item.clone(),
    };
    match item {
        Item::Group(items) => items.iter().flat_map(|item| flat(at, item)).collect(),
        Item::When { text, .. } => vec![piece(&Item::One(vec![Part::Text(text.clone())]))],
        Item::One(_) | Item::Each(_) => vec![piece(item)],
    }
}

/// What an option's value is.
enum Takes {
    /// It has none.
    Flag,
    /// Program text: in the same item, or in the next. `name` is the option alone.
    Code { name: String, inline: bool },
    /// Something else.
    Value { inline: bool },
}

struct Walk<'a> {
    input: Input<'a>,
    /// The places that are reported.
    seen: BTreeSet<At>,
    problems: &'a mut Problems,
}

impl Walk<'_> {
    /// One command, its program first. `whole`: it is certain that a command begins here, so its operands are
    /// looked at too.
    fn command(&mut self, items: &[Piece], whole: bool) {
        let Some((first, rest)) = items.split_first() else {
            return;
        };
        let Some(name) = first.item.literal() else { return };
        let Some(program) = programs::of(&name) else {
            return;
        };
        let mut state = Reading {
            program,
            name: &name,
            operands: 0,
            has_code: false,
            only_operands: false,
        };
        let mut index = 0;
        while let Some(piece) = rest.get(index) {
            index += 1;
            let text = leading(&piece.item);
            if whole && text.is_some_and(|text| program.exec.contains(&text)) {
                self.started(&name, &rest[index..]);
                continue;
            }
            let option = text.filter(|text| {
                let dashed = text.len() > 1 && text.starts_with(['-', '+']);
                !state.only_operands && (dashed || program.code_long.contains(text))
            });
            let Some(option) = option else {
                if !whole || self.operand(&state, piece, &rest[index - 1..]) {
                    return;
                }
                // `sed -i ''`, `deno run`
                let skipped = matches!(piece.item.literal().as_deref(), Some("" | "run"));
                state.operands += usize::from(!skipped);
                continue;
            };
            if option == "--" {
                state.only_operands = true;
                continue;
            }
            match classify(option, &piece.item, program) {
                Takes::Flag | Takes::Value { inline: true } => {}
                Takes::Value { inline: false } => index += 1,
                Takes::Code { name: option, inline } => {
                    let shell = program.names.contains(&"sh") && !option.starts_with("--");
                    if inline {
                        self.code(&state, &option, piece);
                    }
                    // To a shell `-ce` is two options.
                    let text = if inline && !shell {
                        Some(piece)
                    } else {
                        index = past_options(rest, index, shell);
                        index += 1;
                        rest.get(index - 1)
                            .inspect(|next| self.code(&state, &option, next))
                    };
                    if program.names.contains(&"env") {
                        self.split(text, inline, rest.get(index..).unwrap_or_default());
                        return;
                    }
                    let is_script = !program.loads.contains(&option.as_str());
                    state.has_code |= is_script;
                    if program.ends && is_script {
                        return;
                    }
                }
            }
            if program.ends && option == "-s" {
                break;
            }
        }
        if whole && program.language && !state.has_code && state.operands == 0 {
            self.standard_input(&name);
        }
    }

    /// Whether the program reads no further options after this operand.
    fn operand(&mut self, state: &Reading<'_>, piece: &Piece, from: &[Piece]) -> bool {
        let program = state.program;
        let literal = piece.item.literal();
        let many = matches!(piece.item, Item::Each(_));
        match program.operands {
            Operands::Plain => false,
            Operands::First if state.has_code => true,
            Operands::First if literal.as_deref() == Some("") => false,
            Operands::First if literal.as_deref() == Some("run") && program.names.contains(&"deno") => false,
            Operands::First => {
                if literal.as_deref() == Some("-") && program.language {
                    self.standard_input(state.name);
                    return true;
                }
                self.script(state, piece);
                // `git` reads on: an option of a subcommand may be program text too.
                if program.names.contains(&"git") {
                    self.subcommand(state, &from[1..]);
                }
                true
            }
            Operands::From(first) => {
                if state.operands >= first || many {
                    self.text(state, piece);
                }
                false
            }
            Operands::Command(skip) => {
                let assignment = matches!(program.names, ["env"] | ["sudo", ..])
                    && leading(&piece.item).is_some_and(|text| text.contains('='));
                // `env -` is `env -i`.
                let dash = literal.as_deref() == Some("-");
                if assignment || dash || (state.operands < skip && !many) {
                    return false;
                }
                self.started(state.name, from);
                true
            }
        }
    }

    /// Long options of a subcommand.
    fn subcommand(&mut self, state: &Reading<'_>, rest: &[Piece]) {
        for (index, piece) in rest.iter().enumerate() {
            let Some(text) = leading(&piece.item) else {
                continue;
            };
            let name = text.split('=').next().unwrap_or(text);
            if state.program.code_long.contains(&name) {
                let at = if text.contains('=') {
                    Some(piece)
                } else {
                    rest.get(index + 1)
                };
                if let Some(piece) = at {
                    self.code(state, name, piece);
                }
            }
        }
    }

    /// A command that `wrapper` starts.
    fn started(&mut self, wrapper: &str, items: &[Piece]) {
        let Some(first) = items.first() else { return };
        if let Some(name) = self.value(first) {
            self.report(
                &first.at.clone(),
                format!("`{{{name}}}` chooses the program that `{wrapper}` starts; write the program out, {OPT_OUT}"),
            );
        } else {
            self.command(items, true);
        }
    }

    /// `env -S "sh -c …"`: the text is more items.
    fn split(&mut self, text: Option<&Piece>, inline: bool, rest: &[Piece]) {
        let Some(piece) = text else { return };
        let Some(text) = piece.item.literal() else { return };
        let text = if !inline {
            &text
        } else if let Some((_, value)) = text.split_once('=').filter(|_| text.starts_with("--")) {
            value
        } else {
            text.split_once('S').map_or("", |(_, value)| value)
        };
        let words = text.split_whitespace().map(|word| Piece {
            at: piece.at.clone(),
            item: Item::One(vec![Part::Text(word.trim_matches(['"', '\'']).to_owned())]),
        });
        let env = Piece {
            at: piece.at.clone(),
            item: Item::One(vec![Part::Text("env".to_owned())]),
        };
        let items: Vec<Piece> = std::iter::once(env)
            .chain(words)
            .chain(rest.iter().cloned())
            .collect();
        self.command(&items, true);
    }

    fn code(&mut self, state: &Reading<'_>, option: &str, piece: &Piece) {
        let Some(name) = self.value(piece) else { return };
        let safe = shown(state, option, &name);
        self.report(
            &piece.at.clone(),
            format!(
                "`{{{name}}}` stands inside the program text of `{} {option}`, where a value would run as code; \
                 pass {safe}, {OPT_OUT}",
                state.name
            ),
        );
    }

    /// The first operand of a language or of `awk`.
    fn script(&mut self, state: &Reading<'_>, piece: &Piece) {
        let Some(name) = self.value(piece) else { return };
        if !state.program.language {
            return self.text(state, piece);
        }
        self.report(
            &piece.at.clone(),
            format!(
                "`{{{name}}}` chooses the script that `{program}` runs; write the script out and pass the value after \
                 it: [\"{program}\", \"SCRIPT\", \"{{{name}}}\"], {OPT_OUT}",
                program = state.name
            ),
        );
    }

    fn text(&mut self, state: &Reading<'_>, piece: &Piece) {
        let Some(name) = self.value(piece) else { return };
        let safe = shown(state, "", &name);
        self.report(
            &piece.at.clone(),
            format!(
                "`{{{name}}}` is program text of `{}`, where a value would run as code; pass {safe}, {OPT_OUT}",
                state.name
            ),
        );
    }

    fn standard_input(&mut self, program: &str) {
        if let Some(at) = self.input.stdin.cloned() {
            self.report(
                &at,
                format!(
                    "`{program}` would run what it reads on standard input, and a value stands in `stdin`; name a \
                     script in `command`, {OPT_OUT}"
                ),
            );
        }
    }

    /// A name in the item whose values are not all listed.
    fn value(&self, piece: &Piece) -> Option<String> {
        let names = piece.item.names();
        let free = names.into_iter().find(|name| !(self.input.listed)(name));
        free.map(str::to_owned)
    }

    fn report(&mut self, at: &At, text: String) {
        if self.seen.insert(at.clone()) {
            self.problems.add(at, text);
        }
    }
}

/// How far one command is read.
struct Reading<'a> {
    program: &'static Program,
    /// As the command names it.
    name: &'a str,
    /// How many operands there were.
    operands: usize,
    /// An option gave the program text.
    has_code: bool,
    /// `--` came.
    only_operands: bool,
}

/// The literal text that an item begins with.
fn leading(item: &Item) -> Option<&str> {
    match item {
        Item::One(parts) => match parts.first() {
            Some(Part::Text(text)) => Some(text),
            Some(Part::Value(_)) | None => None,
        },
        Item::Each(_) | Item::When { .. } | Item::Group(_) => None,
    }
}

fn classify(option: &str, item: &Item, program: &Program) -> Takes {
    let glued = matches!(item, Item::One(parts) if parts.len() > 1);
    let name = option.split('=').next().unwrap_or(option);
    if program.code_long.contains(&name) {
        return Takes::Code {
            name: name.to_owned(),
            inline: glued || option.contains('='),
        };
    }
    if program.valued_long.contains(&option) {
        return Takes::Value { inline: glued };
    }
    if option.starts_with("--") {
        return Takes::Flag;
    }
    for (index, letter) in option.char_indices().skip(1) {
        let inline = glued || index + letter.len_utf8() < option.len();
        if program.code.contains(&letter) {
            let name = format!("-{letter}");
            return Takes::Code { name, inline };
        }
        if program.valued.contains(&letter) {
            return Takes::Value { inline };
        }
    }
    Takes::Flag
}

/// A shell takes further options between `-c` and its text.
fn past_options(rest: &[Piece], mut index: usize, shell: bool) -> usize {
    let is_option = |piece: &Piece| {
        piece
            .item
            .literal()
            .is_some_and(|text| text.starts_with(['-', '+']))
    };
    while shell && rest.get(index).is_some_and(is_option) {
        index += 1;
    }
    index
}

fn shown(state: &Reading<'_>, option: &str, name: &str) -> String {
    let safe = state.program.safe;
    safe.replace("%p", state.name)
        .replace("%o", option)
        .replace("%v", &format!("{{{name}}}"))
}

/// Whether values stand in what the program reads on standard input.
pub(super) fn has_values(stdin: &super::tool::Stdin) -> bool {
    match stdin {
        super::tool::Stdin::Nothing => false,
        super::tool::Stdin::Secrets | super::tool::Stdin::Arguments => true,
        super::tool::Stdin::Text(parts) => !template::part_names(parts).is_empty(),
    }
}
