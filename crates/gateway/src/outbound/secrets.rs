//! Whether a form asks for a secret: a password, a key, a one-time code, the number of a card (A-74, G-29).
//!
//! Called by `outbound` for each form before anybody sees it. Pure. It reads words, in many languages and spellings,
//! and never knows what a form is for: some that ask for a secret without saying so will pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::LazyLock,
};

use aho_corasick::AhoCorasick;
use longhaul_mcp::form::{Choice, Field, Form, Format, Kind};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// The words, once folded.
static TERMS: LazyLock<Terms> = LazyLock::new(|| Terms::read(include_str!("terms.txt")));

/// A field that one types into.
struct Typed<'a> {
    name: &'a str,
    title: Option<&'a str>,
    description: Option<&'a str>,
    default: Option<&'a str>,
    /// The most that it takes, if that is a number.
    most: Option<Most>,
}

/// The most that a field for a number takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Most {
    /// 9: a digit.
    Digit,
    /// Less than the PIN of a card.
    Small,
    /// More, or anything.
    Large,
}

/// So many fields for a digit take a secret that is called a word or a key.
const DIGITS: usize = 3;
/// So many choices may be the words of a wallet.
const WORD_LIST: usize = 12;
/// So many fields for numbered words or digits are a secret of several parts.
const NUMBERED: usize = 4;
/// So many first letters may make a word.
const ACROSTIC: usize = 5;
/// So many characters of a name, a choice or a default are read.
const NAME_CHARS: usize = 200;
/// So many choices are read.
const CHOICES_READ: usize = 100;

/// The term that says that a form asks for a secret; `None` when it asks for none.
pub(super) fn sought(form: &Form) -> Option<&'static str> {
    let fields: Vec<Typed<'_>> = form.fields().iter().filter_map(typed).collect();
    let choices: Vec<&str> = form.fields().iter().flat_map(choices).collect();
    if fields.is_empty() {
        let is_list = choices.len() >= WORD_LIST;
        return is_list.then(|| described(form.message(), false)).flatten();
    }
    let asks_who = |field: &Typed<'_>| TERMS.is_one(Section::Who, field.name);
    let message = if fields.iter().all(asks_who) {
        ""
    } else {
        form.message()
    };
    let digits = fields
        .iter()
        .filter(|field| field.most == Some(Most::Digit))
        .count();
    let is_number = digits < DIGITS && fields.iter().all(|field| field.most.is_some());
    fields
        .iter()
        .find_map(in_field)
        .or_else(|| described(message, is_number))
        .or_else(|| numbered(&fields))
        .or_else(|| beside_a_choice(&fields, &choices))
        .or_else(|| down_the_titles(&fields))
}

fn typed(field: &Field) -> Option<Typed<'_>> {
    let most = match &field.kind {
        Kind::Text { format, .. } => match format {
            Some(Format::Email | Format::Date | Format::DateTime) => return None,
            Some(Format::Uri) | None => None,
        },
        Kind::Number { maximum, .. } => match maximum.as_ref().and_then(serde_json::Number::as_f64) {
            Some(most) if most < 10.0 => Some(Most::Digit),
            Some(most) if most < 1_000.0 => Some(Most::Small),
            Some(_) | None => Some(Most::Large),
        },
        Kind::Choice(among) if among.iter().all(is_digit) => Some(Most::Digit),
        Kind::Choice(_) | Kind::Choices { .. } | Kind::Boolean => return None,
    };
    Some(Typed {
        name: &field.name,
        title: field.title.as_deref(),
        description: field.description.as_deref(),
        default: field.default.as_ref().and_then(serde_json::Value::as_str),
        most,
    })
}

fn is_digit(choice: &Choice) -> bool {
    choice.value.len() == 1 && choice.value.parse::<u8>().is_ok()
}

fn choices(field: &Field) -> impl Iterator<Item = &str> {
    let among: &[Choice] = match &field.kind {
        Kind::Choice(among) | Kind::Choices { among, .. } => among,
        Kind::Text { .. } | Kind::Number { .. } | Kind::Boolean => &[],
    };
    among
        .iter()
        .map(|choice| choice.title.as_deref().unwrap_or(&choice.value))
}

fn in_field(field: &Typed<'_>) -> Option<&'static str> {
    let names = || {
        [Some(field.name), field.title]
            .into_iter()
            .flatten()
            .map(shortened)
    };
    if names().any(|name| Reading::of(folded(name)).has(Section::Elsewhere)) {
        return None;
    }
    let is_number = field.most.is_some();
    let whole: Vec<&str> = names().chain(field.description).collect();
    names()
        .find_map(|name| named(name, field.most))
        .or_else(|| field.description.and_then(|text| described(text, is_number)))
        .or_else(|| field.default.map(shortened).and_then(raw))
        .or_else(|| Reading::of(folded(&whole.join(" "))).pair())
}

/// What names a secret in a field for text, or where a sentence asks for it.
const NAMED: &[Section] = &[
    Section::Anywhere,
    Section::Codes,
    Section::Names,
    Section::Numbers,
];

/// A secret in what a field is called.
fn named(text: &str, most: Option<Most>) -> Option<&'static str> {
    let sections: &[Section] = match most {
        None => NAMED,
        Some(Most::Large) => &[Section::Codes, Section::Numbers],
        Some(Most::Digit | Most::Small) => &[Section::Short],
    };
    let mut readings = readings(text).into_iter();
    readings
        .find_map(|reading| reading.find(sections))
        .or_else(|| raw(text))
}

/// A secret in a sentence.
fn described(text: &str, is_number: bool) -> Option<&'static str> {
    let asked: Vec<_> = sentences(text)
        .map(readings)
        .filter(|all| !all[0].has(Section::Elsewhere))
        .collect();
    let found = asked.iter().flatten().find_map(|reading| {
        let sections: &[Section] = match (is_number, reading.has(Section::Asking)) {
            (true, true) => &[Section::Codes, Section::Numbers],
            (true, false) => &[Section::Codes],
            (false, true) => NAMED,
            (false, false) => &[Section::Anywhere, Section::Codes],
        };
        reading.find(sections)
    });
    let together = Reading::of(asked.iter().flat_map(|all| all[0].words.clone()).collect());
    found.or_else(|| together.pair()).or_else(|| raw(text))
}

/// The sentences of a text. A mark within a word ends none.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let ends = |mark: char| ['\n', '。', '！', '？', '；'].contains(&mark);
    text.split(ends).flat_map(|line| {
        [". ", "! ", "? "].iter().fold(vec![line], |parts, end| {
            parts.into_iter().flat_map(|part| part.split(end)).collect()
        })
    })
}

/// Fields for numbered words, such as those that bring a wallet back, or for numbered digits.
fn numbered(fields: &[Typed<'_>]) -> Option<&'static str> {
    let mut counts = BTreeMap::<usize, usize>::new();
    for field in fields {
        let name = shortened(field.title.unwrap_or(field.name));
        let reading = Reading::of(folded(name));
        if reading.words.len() <= 2 && name.contains(char::is_numeric) {
            for term in reading.terms(Section::Words) {
                *counts.entry(term).or_default() += 1;
            }
        }
    }
    let (term, _) = counts.into_iter().find(|(_, count)| *count >= NUMBERED)?;
    Some(TERMS.all[term].text)
}

/// A field for whatever was chosen, where a secret is among the choices.
fn beside_a_choice(fields: &[Typed<'_>], choices: &[&str]) -> Option<&'static str> {
    let is_open = |field: &Typed<'_>| field.most.is_none() && TERMS.is_one(Section::Generic, field.name);
    let chosen = || {
        choices
            .iter()
            .take(CHOICES_READ)
            .find_map(|choice| named(shortened(choice), None))
    };
    fields.iter().any(is_open).then(chosen).flatten()
}

/// A word that the first letters of the titles make.
fn down_the_titles(fields: &[Typed<'_>]) -> Option<&'static str> {
    let first = |field: &Typed<'_>| field.title.unwrap_or(field.name).chars().next();
    let word: String = fields.iter().filter_map(first).collect();
    (fields.len() >= ACROSTIC)
        .then(|| Reading::of(folded(&word.to_lowercase())).find(&[Section::Anywhere]))
        .flatten()
}

/// How a secret of a known make begins, as it is written.
fn raw(text: &str) -> Option<&'static str> {
    let begins_word = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    let marks = TERMS.all.iter().filter(|term| term.section == Section::Raw);
    marks
        .map(|mark| mark.text)
        .find(|mark| text.match_indices(mark).any(|(at, _)| begins_word(at)))
}

/// As much of a name, a choice or a default as is read.
fn shortened(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(NAME_CHARS)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// A text as words, in one of the ways in which it may be meant.
struct Reading {
    words: Vec<String>,
    met: Vec<Met>,
}

/// A term in a text.
struct Met {
    /// Its number.
    term: usize,
    /// Its first word.
    from: usize,
    /// The word after its last.
    to: usize,
}

impl Reading {
    fn of(words: Vec<String>) -> Reading {
        let met = TERMS.met(&words);
        Reading { words, met }
    }

    /// A term of these sections that nothing beside it makes harmless, of the first section first.
    fn find(&self, sections: &[Section]) -> Option<&'static str> {
        let end = self.met.iter().filter(|met| met.section() == Section::Unwanted);
        let end = end.map(|met| met.from).min().unwrap_or(self.words.len());
        let rank = |met: &Met| sections.iter().position(|of| *of == met.section());
        let wanted = self.met.iter().filter(|met| met.from < end);
        let ranked = wanted.filter_map(|met| Some((rank(met).filter(|_| !self.is_harmless(met))?, met.term)));
        ranked.min().map(|(_, term)| TERMS.all[term].text)
    }

    fn is_harmless(&self, met: &Met) -> bool {
        let is_loose = matches!(met.section(), Section::Names | Section::Numbers | Section::Codes);
        let beside = |from: usize, to: usize, tight: Section, loose: Section| {
            self.met.iter().any(|other| {
                let section = other.section();
                (other.from, other.to) == (from, to) && (section == tight || (is_loose && section == loose))
            })
        };
        let within =
            |other: &Met| other.section() == Section::Harmless && other.from < met.to && met.from < other.to;
        let before = met.from.checked_sub(1);
        self.met.iter().any(within)
            || before.is_some_and(|at| beside(at, met.from, Section::Before, Section::BeforeLoose))
            || beside(met.to, met.to + 1, Section::After, Section::AfterLoose)
    }

    fn has(&self, section: Section) -> bool {
        self.met.iter().any(|met| met.section() == section)
    }

    fn terms(&self, section: Section) -> BTreeSet<usize> {
        let of = self.met.iter().filter(|met| met.section() == section);
        of.map(|met| met.term).collect()
    }

    /// Two things that make a secret together, such as digits and a card.
    fn pair(&self) -> Option<&'static str> {
        let is_pair =
            |met: &&Met| matches!(met.section(), Section::Pair(pair) if self.has(Section::Of(pair)));
        self.met
            .iter()
            .find(is_pair)
            .map(|what| TERMS.all[what.term].text)
    }
}

impl Met {
    fn section(&self) -> Section {
        TERMS.all[self.term].section
    }
}

/// The text as words, in each way in which it may be meant.
fn readings(text: &str) -> Vec<Reading> {
    let plain = folded(text);
    let bare = folded(&text.replace(|c: char| c.is_ascii_digit(), " "));
    let backwards = plain.iter().map(|word| word.chars().rev().collect()).collect();
    let doubled = folded(&text.to_lowercase().replace("vv", "w"));
    let [with_i, with_l] = [leet(text, 'i'), leet(text, 'l')];
    let mut all = vec![plain.clone()];
    for words in [
        spelt(&with_i),
        spelt(&plain),
        bare,
        backwards,
        doubled,
        with_i,
        with_l,
    ] {
        if !all.contains(&words) {
            all.push(words);
        }
    }
    all.into_iter().map(Reading::of).collect()
}

/// Lower-case words without accents, look-alikes as the letter they look like; `apiKey` is two words.
fn folded(text: &str) -> Vec<String> {
    let mut split = String::new();
    let mut before = None::<char>;
    let letters: Vec<char> = text
        .chars()
        .map(unboxed)
        .nfkc()
        .filter(|c| !is_invisible(*c))
        .collect();
    for (at, &c) in letters.iter().enumerate() {
        let next_is_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = before.is_some_and(|before| {
            c.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower))
        });
        if begins {
            split.push(' ');
        }
        split.push(c);
        before = Some(c);
    }
    split
        .split(|c: char| !c.is_alphanumeric() && !is_combining_mark(c))
        .filter(|word| !word.is_empty())
        .map(fold)
        .collect()
}

fn fold(word: &str) -> String {
    let lower = word.to_lowercase().replace('ß', "ss");
    let bare: String = lower.nfd().filter(|c| !is_accent(*c)).nfc().collect();
    let shown: String = unicode_security::skeleton(&bare).collect();
    shown
        .to_lowercase()
        .nfd()
        .filter(|c| !is_accent(*c))
        .nfc()
        .collect()
}

/// The words with digits and signs read as the letters they stand for, where a word has letters, too.
fn leet(text: &str, one: char) -> Vec<String> {
    let read: String = text
        .split_whitespace()
        .map(|word| {
            if word.chars().count() > 1 && !word.chars().any(char::is_alphabetic) {
                return word.to_owned();
            }
            word.chars()
                .map(|c| match c {
                    '0' => 'o',
                    '1' | '!' | '|' => one,
                    '3' => 'e',
                    '4' | '@' => 'a',
                    '5' | '$' => 's',
                    '7' => 't',
                    _ => c,
                })
                .collect()
        })
        .collect::<Vec<String>>()
        .join(" ");
    folded(&read.to_lowercase())
}

/// Letters in boxes and small capitals as plain letters; Unicode's compatibility forms leave these out.
fn unboxed(c: char) -> char {
    const SMALL: &str = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡ-ʏᴢ";
    let letter = |at: u32| char::from_u32(u32::from('a') + at).unwrap_or(c);
    match c {
        '🅐'..='🅩' => letter(u32::from(c) - u32::from('🅐')),
        '🅰'..='🆉' => letter(u32::from(c) - u32::from('🅰')),
        _ => SMALL
            .chars()
            .zip('a'..='z')
            .find_map(|(small, letter)| (small == c && c != '-').then_some(letter))
            .unwrap_or(c),
    }
}

/// The words with letters that stand alone put together: `p a s s`.
fn spelt(words: &[String]) -> Vec<String> {
    let mut put = Vec::<String>::new();
    let mut run = String::new();
    for word in words {
        if word.chars().count() == 1 {
            run.push_str(word);
        } else {
            put.extend((!run.is_empty()).then(|| mem::take(&mut run)));
            put.push(word.clone());
        }
    }
    put.extend((!run.is_empty()).then_some(run));
    put
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
        || c.is_control()
}

/// Accents and points that a reader can do without.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5c7}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{640}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}')
}

/// What the terms of a part of `terms.txt` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Anywhere,
    Codes,
    Names,
    Numbers,
    Short,
    Before,
    BeforeLoose,
    After,
    AfterLoose,
    Harmless,
    /// The one half of a pair, by the number of the pair.
    Pair(usize),
    /// The other half.
    Of(usize),
    Words,
    Generic,
    Elsewhere,
    Unwanted,
    Asking,
    Raw,
    Who,
}

/// A term of `terms.txt`.
struct Term {
    section: Section,
    /// As it is written there, without the sign before it.
    text: &'static str,
    words: Vec<String>,
    /// It is a word of its own, not a part of one.
    is_whole: bool,
}

/// `terms.txt`.
struct Terms {
    all: Vec<Term>,
    /// Finds all of them in one pass.
    joined: AhoCorasick,
}

impl Terms {
    /// Reads the file of terms. A section that nobody knows is a fault of the build, and found by any test.
    fn read(text: &'static str) -> Terms {
        let mut all = Vec::new();
        let (mut section, mut pairs) = (Section::Anywhere, 0);
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                pairs += usize::from(name == "pair");
                section = Section::named(name, pairs);
            } else {
                let terms = line.split(',').map(str::trim).filter(|term| !term.is_empty());
                all.extend(terms.map(|term| Term::read(section, term)));
            }
        }
        let joined = all.iter().map(|term: &Term| term.words.concat());
        let joined = AhoCorasick::new(joined).expect("a few thousand short words");
        Terms { all, joined }
    }

    /// The terms among these words, and where they stand.
    fn met(&self, words: &[String]) -> Vec<Met> {
        let mut ends = Vec::with_capacity(words.len());
        let mut letters = String::new();
        for word in words {
            letters.push_str(word);
            ends.push(letters.len());
        }
        let found = self.joined.find_overlapping_iter(&letters);
        found
            .filter_map(|found| {
                let term = found.pattern().as_usize();
                let from = ends.partition_point(|end| *end <= found.start());
                let to = ends.partition_point(|end| *end < found.end()) + 1;
                let stands = self.all[term].stands(words.get(from..to)?);
                stands.then_some(Met { term, from, to })
            })
            .collect()
    }

    fn is_one(&self, section: Section, name: &str) -> bool {
        let words = folded(shortened(name));
        self.all
            .iter()
            .any(|term| term.section == section && term.words == words)
    }
}

impl Section {
    fn named(name: &str, pair: usize) -> Section {
        match name {
            "anywhere" => Section::Anywhere,
            "codes" => Section::Codes,
            "names" => Section::Names,
            "numbers" => Section::Numbers,
            "short" => Section::Short,
            "before" => Section::Before,
            "before loose" => Section::BeforeLoose,
            "after" => Section::After,
            "after loose" => Section::AfterLoose,
            "harmless" => Section::Harmless,
            "pair" => Section::Pair(pair),
            "of" => Section::Of(pair),
            "words" => Section::Words,
            "generic" => Section::Generic,
            "elsewhere" => Section::Elsewhere,
            "unwanted" => Section::Unwanted,
            "asking" => Section::Asking,
            "raw" => Section::Raw,
            "who" => Section::Who,
            unknown => unreachable!("terms.txt has no section `{unknown}`"),
        }
    }
}

impl Term {
    fn read(section: Section, written: &'static str) -> Term {
        let whole = written.strip_prefix('=');
        let is_beside = matches!(
            section,
            Section::Before | Section::BeforeLoose | Section::After | Section::AfterLoose
        );
        let text = whole.unwrap_or(written);
        Term {
            section,
            text,
            words: folded(text),
            is_whole: whole.is_some() || is_beside,
        }
    }

    /// Whether it stands in just these words: within the one, or as each of them, but for the end of the last, since
    /// languages inflect.
    fn stands(&self, words: &[String]) -> bool {
        const FEWEST: usize = 3;
        let (Some((last, others)), Some((end, start))) = (words.split_last(), self.words.split_last()) else {
            return false;
        };
        let is_inflected = !self.is_whole && end.chars().count() >= FEWEST && last.starts_with(end.as_str());
        let is_within = !self.is_whole && others.is_empty();
        is_within || (others == start && (last == end || is_inflected))
    }
}
