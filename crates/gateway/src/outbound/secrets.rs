//! Whether a form asks for a secret: a password, a key, a one-time code, the number of a card (A-74, G-29).
//!
//! Called by `outbound` for each form before anybody sees it. Pure. It reads words, in many languages and spellings,
//! and never knows what a form is for: some that ask for a secret without saying so will pass.

use std::{collections::BTreeSet, mem, sync::LazyLock};

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

/// The term that says that a form asks for a secret; `None` when it asks for none.
pub(super) fn sought(form: &Form) -> Option<&'static str> {
    let fields: Vec<Typed<'_>> = form.fields().iter().filter_map(typed).collect();
    let choices: Vec<&str> = form.fields().iter().flat_map(choices).collect();
    if fields.is_empty() {
        let is_list = choices.len() >= WORD_LIST;
        return is_list.then(|| described(form.message(), false)).flatten();
    }
    let asks_who = |field: &Typed<'_>| TERMS.who.iter().any(|who| who.words == folded(field.name));
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
    let names = || [Some(field.name), field.title].into_iter().flatten();
    if names().any(|name| is_elsewhere(&Reading::of(folded(name)))) {
        return None;
    }
    let whole: Vec<&str> = names().chain(field.description).collect();
    names()
        .find_map(|name| named(name, field.most))
        .or_else(|| {
            field
                .description
                .and_then(|text| described(text, field.most.is_some()))
        })
        .or_else(|| field.default.and_then(raw))
        .or_else(|| pair(&Reading::of(folded(&whole.join(" ")))))
}

/// A secret in what a field is called.
fn named(text: &str, most: Option<Most>) -> Option<&'static str> {
    let lists: &[&[Term]] = match most {
        None => &[&TERMS.anywhere, &TERMS.codes, &TERMS.names, &TERMS.numbers],
        Some(Most::Large) => &[&TERMS.codes, &TERMS.numbers],
        Some(Most::Digit | Most::Small) => &[&TERMS.short],
    };
    readings(text)
        .iter()
        .find_map(|reading| reading.find(lists))
        .or_else(|| raw(text))
}

/// A secret in a sentence.
fn described(text: &str, is_number: bool) -> Option<&'static str> {
    let asked: Vec<_> = sentences(text)
        .map(readings)
        .filter(|all| !is_elsewhere(&all[0]))
        .collect();
    let found = asked.iter().flatten().find_map(|reading| {
        let asks = TERMS.asking.iter().any(|verb| reading.has(verb));
        let lists: &[&[Term]] = match (is_number, asks) {
            (true, true) => &[&TERMS.codes, &TERMS.numbers],
            (true, false) => &[&TERMS.codes],
            (false, true) => &[&TERMS.anywhere, &TERMS.codes, &TERMS.names, &TERMS.numbers],
            (false, false) => &[&TERMS.anywhere, &TERMS.codes],
        };
        reading.find(lists)
    });
    let together = Reading::of(asked.iter().flat_map(|all| all[0].words.clone()).collect());
    found.or_else(|| pair(&together)).or_else(|| raw(text))
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

/// Whether a text says where a secret is, how long it is, or that it is not wanted.
fn is_elsewhere(reading: &Reading) -> bool {
    TERMS.locating.iter().any(|place| reading.has(place))
}

/// Two things that make a secret together, such as digits and a card.
fn pair(reading: &Reading) -> Option<&'static str> {
    let one = |terms: &'static [Term]| terms.iter().find(|term| reading.has(term)).map(|term| term.text);
    TERMS.pairs.iter().find_map(|(what, of)| one(what).and(one(of)))
}

/// Fields for numbered words, such as those that bring a wallet back, or for numbered digits.
fn numbered(fields: &[Typed<'_>]) -> Option<&'static str> {
    let is_numbered = |text: &str, term: &Term| {
        let reading = Reading::of(folded(text));
        reading.has(term) && reading.words.len() <= 2 && text.contains(char::is_numeric)
    };
    let named = |field: &Typed<'_>, term: &Term| is_numbered(field.title.unwrap_or(field.name), term);
    let many = |term: &&Term| fields.iter().filter(|field| named(field, term)).count() >= NUMBERED;
    TERMS.words.iter().find(many).map(|term| term.text)
}

/// A field for whatever was chosen, where a secret is among the choices.
fn beside_a_choice(fields: &[Typed<'_>], choices: &[&str]) -> Option<&'static str> {
    let is_open = fields.iter().any(|field| {
        field.most.is_none() && TERMS.generic.iter().any(|name| name.words == folded(field.name))
    });
    let chosen = || choices.iter().find_map(|choice| named(choice, None));
    is_open.then(chosen).flatten()
}

/// A word that the first letters of the titles make.
fn down_the_titles(fields: &[Typed<'_>]) -> Option<&'static str> {
    let first = |field: &Typed<'_>| field.title.unwrap_or(field.name).chars().next();
    let word: String = fields.iter().filter_map(first).collect();
    (fields.len() >= ACROSTIC)
        .then(|| Reading::of(folded(&word.to_lowercase())).find(&[&TERMS.anywhere]))
        .flatten()
}

/// How a secret of a known make begins, as it is written.
fn raw(text: &str) -> Option<&'static str> {
    let begins_word = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    let marks = TERMS.raw.iter().map(|mark| mark.text);
    marks
        .into_iter()
        .find(|mark| text.match_indices(mark).any(|(at, _)| begins_word(at)))
}

/// A text as words, in one of the ways in which it may be meant.
struct Reading {
    words: Vec<String>,
    /// The terms that may be in it, by their numbers: no other is looked for.
    near: BTreeSet<usize>,
}

impl Reading {
    fn of(words: Vec<String>) -> Reading {
        let near = TERMS.near(&words.concat());
        Reading { words, near }
    }

    /// The first of the terms that nothing beside it makes harmless.
    fn find(&self, lists: &[&'static [Term]]) -> Option<&'static str> {
        let mut words = self.words.clone();
        for known in self.near_ones(&TERMS.harmless) {
            for (from, to) in places(&words, known).into_iter().rev() {
                words.drain(from..to.min(words.len()));
            }
        }
        let is = |word: Option<&String>, known: &[Term]| {
            word.is_some_and(|word| known.iter().any(|known| known.joined == *word))
        };
        let asks = |term: &&'static Term| {
            places(&words, term).into_iter().any(|(from, to)| {
                let before = from.checked_sub(1).and_then(|at| words.get(at));
                !is(before, &TERMS.before) && !is(words.get(to), &TERMS.after)
            })
        };
        let mut terms = lists.iter().copied().flat_map(|list| self.near_ones(list));
        terms.find(asks).map(|term| term.text)
    }

    fn has(&self, term: &Term) -> bool {
        self.near.contains(&term.number) && !places(&self.words, term).is_empty()
    }

    fn near_ones(&self, terms: &'static [Term]) -> impl Iterator<Item = &'static Term> {
        terms.iter().filter(|term| self.near.contains(&term.number))
    }
}

/// Where a term stands among words: from which to before which.
fn places(words: &[String], term: &Term) -> Vec<(usize, usize)> {
    let runs = words.windows(term.words.len()).enumerate();
    let mut found: Vec<(usize, usize)> = runs
        .filter(|(_, run)| begins_alike(run, term))
        .map(|(at, _)| (at, at + term.words.len()))
        .collect();
    if !term.is_whole {
        let inside = words.iter().enumerate();
        let inside = inside.filter(|(_, word)| word.contains(&term.joined));
        found.extend(inside.map(|(at, _)| (at, at + 1)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether these words are the term, but for the end of the last: languages inflect.
fn begins_alike(words: &[String], term: &Term) -> bool {
    const FEWEST: usize = 3;
    let (Some((last, others)), Some((end, start))) = (words.split_last(), term.words.split_last()) else {
        return false;
    };
    let is_inflected = !term.is_whole && end.chars().count() >= FEWEST && last.starts_with(end.as_str());
    others == start && (last == end || is_inflected)
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

/// A term of `terms.txt`.
struct Term {
    /// As it is written there, without the sign before it.
    text: &'static str,
    words: Vec<String>,
    /// The words as one.
    joined: String,
    /// It is a word of its own, not a part of one.
    is_whole: bool,
    /// Which one it is in the file.
    number: usize,
}

/// `terms.txt`, by its sections.
#[derive(Default)]
struct Terms {
    /// Finds all of them in one pass.
    joined: Option<AhoCorasick>,
    anywhere: Vec<Term>,
    codes: Vec<Term>,
    names: Vec<Term>,
    numbers: Vec<Term>,
    short: Vec<Term>,
    before: Vec<Term>,
    after: Vec<Term>,
    harmless: Vec<Term>,
    pairs: Vec<(Vec<Term>, Vec<Term>)>,
    words: Vec<Term>,
    generic: Vec<Term>,
    locating: Vec<Term>,
    asking: Vec<Term>,
    raw: Vec<Term>,
    who: Vec<Term>,
}

impl Terms {
    /// Reads the file of terms. A section that nobody knows is a fault of the build, and found by any test.
    fn read(text: &'static str) -> Terms {
        let mut terms = Terms::default();
        let mut section = "";
        let mut joined = Vec::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                if name == "pair" {
                    terms.pairs.push((Vec::new(), Vec::new()));
                }
                continue;
            }
            for written in line.split(',').map(str::trim).filter(|term| !term.is_empty()) {
                let term = Term::read(written, joined.len());
                joined.push(term.joined.clone());
                terms.section(section).push(term);
            }
        }
        terms.joined = Some(AhoCorasick::new(joined).expect("a few thousand short words"));
        terms
    }

    /// The numbers of the terms that are in this run of letters.
    fn near(&self, letters: &str) -> BTreeSet<usize> {
        let joined = self.joined.iter();
        let all = joined.flat_map(|joined| joined.find_overlapping_iter(letters));
        all.map(|found| found.pattern().as_usize()).collect()
    }

    fn section(&mut self, name: &str) -> &mut Vec<Term> {
        match name {
            "anywhere" => &mut self.anywhere,
            "codes" => &mut self.codes,
            "names" => &mut self.names,
            "numbers" => &mut self.numbers,
            "short" => &mut self.short,
            "before" => &mut self.before,
            "after" => &mut self.after,
            "harmless" => &mut self.harmless,
            "pair" => &mut self.pairs.last_mut().expect("its head began one").0,
            "of" => &mut self.pairs.last_mut().expect("a pair comes before it").1,
            "words" => &mut self.words,
            "generic" => &mut self.generic,
            "locating" => &mut self.locating,
            "asking" => &mut self.asking,
            "raw" => &mut self.raw,
            "who" => &mut self.who,
            unknown => unreachable!("terms.txt has no section `{unknown}`"),
        }
    }
}

impl Term {
    fn read(written: &'static str, number: usize) -> Term {
        let whole = written.strip_prefix('=');
        let text = whole.unwrap_or(written);
        let words = folded(text);
        Term {
            text,
            joined: words.concat(),
            words,
            is_whole: whole.is_some(),
            number,
        }
    }
}
