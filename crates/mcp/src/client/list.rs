//! Lists of a server, page by page: prompts, resources and their templates; [`super::tools`] reads its own pages
//! through this module, too.
//!
//! An item passes on as it was written, so one that a strict client would choke on is dropped alone. Pages that do
//! not end are refused.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::{
    clean,
    frame::{Obj, Raw},
    request::RelayMethod,
};

/// The most pages of one list.
pub const PAGES_MAX: usize = 500;
/// The most items of one list.
pub const ITEMS_MAX: usize = 10_000;
/// The most bytes of items of one list.
pub const BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// The most dropped items of one list that are remembered with their reasons.
pub const DROPPED_MAX: usize = 100;

/// A page that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadPage {
    /// It has no array of this name.
    #[error("a page of the server's list has no array `{member}`")]
    NoItems {
        /// The array.
        member: &'static str,
    },
    /// The cursor is no string.
    #[error("`nextCursor` of the server's list is no string")]
    BadCursor,
    /// A cursor came before, or there are more than [`PAGES_MAX`] pages.
    #[error("the server's list does not end")]
    Endless,
}

/// The cursors of one list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pages {
    cursors: BTreeSet<String>,
}

impl Pages {
    /// A page and its items.
    pub(super) fn items(result: &Raw, member: &'static str) -> Result<(Obj, Vec<Raw>), BadPage> {
        let page: Obj = result.read().map_err(|_| BadPage::NoItems { member })?;
        let items = page.get(member).ok_or(BadPage::NoItems { member })?;
        Ok((page, items))
    }

    /// Where the next page begins; an empty cursor is one, too (B-53).
    pub(super) fn next(&mut self, page: &Obj) -> Result<Option<String>, BadPage> {
        let cursor = match page.raw("nextCursor") {
            None => return Ok(None),
            Some(cursor) if cursor.text() == "null" => return Ok(None),
            Some(cursor) => cursor.read::<String>().map_err(|_| BadPage::BadCursor)?,
        };
        if self.cursors.len() + 1 >= PAGES_MAX || !self.cursors.insert(cursor.clone()) {
            return Err(BadPage::Endless);
        }
        Ok(Some(cursor))
    }
}

/// What is listed besides tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// Prompts, by name.
    Prompts,
    /// Resources, by URI.
    Resources,
    /// Templates of resources, by their pattern of URIs.
    Templates,
}

impl Of {
    /// The method that lists them.
    pub fn method(self) -> RelayMethod {
        match self {
            Of::Prompts => RelayMethod::ListPrompts,
            Of::Resources => RelayMethod::ListResources,
            Of::Templates => RelayMethod::ListTemplates,
        }
    }

    /// The member of a page that holds them.
    pub fn member(self) -> &'static str {
        match self {
            Of::Prompts => "prompts",
            Of::Resources => "resources",
            Of::Templates => "resourceTemplates",
        }
    }

    /// The member that tells one from another.
    pub fn key(self) -> &'static str {
        match self {
            Of::Prompts => "name",
            Of::Resources => "uri",
            Of::Templates => "uriTemplate",
        }
    }

    /// One of them, in words.
    pub fn one(self) -> &'static str {
        match self {
            Of::Prompts => "prompt",
            Of::Resources => "resource",
            Of::Templates => "resource template",
        }
    }

    /// The item that this is.
    fn item(self, raw: Obj) -> Result<Item, Bad> {
        let is_text = |member: &str| raw.raw(member).is_none_or(|value| value.text().starts_with('"'));
        let is_list = raw
            .raw("arguments")
            .is_none_or(|value| value.text().starts_with('['));
        let is_sound = ["title", "description", "mimeType"].into_iter().all(is_text)
            && raw.get::<String>("name").is_some()
            && (is_list || self != Of::Prompts);
        let key: String = raw.get(self.key()).ok_or(Bad::Shape)?;
        if !is_sound {
            return Err(Bad::Shape);
        }
        if !self.is_key(&key) {
            return Err(Bad::Key { member: self.key() });
        }
        Ok(Item { key, raw })
    }

    /// Strict clients refuse a whole list for one URI without a scheme; what cannot be shown cannot be chosen.
    fn is_key(self, key: &str) -> bool {
        let is_plain = !key.is_empty() && !key.chars().any(char::is_control);
        let has_scheme = || {
            let (scheme, rest) = key.split_once(':').unwrap_or_default();
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
                && !rest.is_empty()
        };
        is_plain && (self != Of::Resources || has_scheme())
    }

    /// The result of a list with these items, for [`crate::Reply::Relayed`].
    pub fn page<'a>(self, items: impl IntoIterator<Item = &'a Obj>, next_cursor: Option<&str>) -> Raw {
        let items: Vec<Raw> = items.into_iter().map(Obj::to_raw).collect();
        let mut page = Obj::default();
        page.set(self.member(), &items);
        page.set_some("nextCursor", next_cursor);
        page.to_raw()
    }
}

/// One listed thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What tells it from others of its server.
    pub key: String,
    /// All of it, as it was written.
    pub raw: Obj,
}

/// Why an item is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Bad {
    /// A member that every client reads is missing or of the wrong type.
    #[error("a member that every client reads is missing or of the wrong type")]
    Shape,
    /// It is empty or has control characters, or it is a URI without a scheme.
    #[error("its `{member}` is empty, has control characters, or is a URI without a scheme")]
    Key {
        /// The member that tells one from another.
        member: &'static str,
    },
    /// Another one came before it.
    #[error("another one of this name came before it")]
    Duplicate,
    /// The list is longer than [`ITEMS_MAX`] or [`BYTES_MAX`].
    #[error("the server lists more than one server may")]
    TooMany,
}

/// An item that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// What tells it from others, fit to be shown, if it has that.
    pub key: Option<String>,
    /// Why.
    pub why: Bad,
}

/// A list of one server, page by page.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    of: Of,
    /// In the server's own order.
    pub items: Vec<Item>,
    /// The first [`DROPPED_MAX`] that were dropped.
    pub dropped: Vec<Dropped>,
    /// All that were dropped.
    pub dropped_count: usize,
    keys: BTreeSet<String>,
    pages: Pages,
    bytes: usize,
}

impl Items {
    /// An empty list.
    pub fn new(of: Of) -> Items {
        Items {
            of,
            items: Vec::new(),
            dropped: Vec::new(),
            dropped_count: 0,
            keys: BTreeSet::new(),
            pages: Pages::default(),
            bytes: 0,
        }
    }

    /// Adds the result of one request. Gives the cursor of the next page, if there is one.
    ///
    /// # Errors
    /// The result is no page, or the pages do not end; the items before stand.
    pub fn add(&mut self, result: &Raw) -> Result<Option<String>, BadPage> {
        let (page, items) = Pages::items(result, self.of.member())?;
        for raw in items {
            if let Err(why) = self.take(&raw) {
                self.drop_one(&raw, why);
            }
        }
        self.pages.next(&page)
    }

    fn take(&mut self, raw: &Raw) -> Result<(), Bad> {
        let item = self.of.item(raw.read().map_err(|_| Bad::Shape)?)?;
        let bytes = self.bytes + raw.text().len();
        if self.items.len() >= ITEMS_MAX || bytes > BYTES_MAX {
            return Err(Bad::TooMany);
        }
        if !self.keys.insert(item.key.clone()) {
            return Err(Bad::Duplicate);
        }
        self.bytes = bytes;
        self.items.push(item);
        Ok(())
    }

    fn drop_one(&mut self, raw: &Raw, why: Bad) {
        self.dropped_count += 1;
        if self.dropped.len() < DROPPED_MAX {
            self.dropped.push(Dropped {
                key: shown(raw, self.of.key()),
                why,
            });
        }
    }
}

/// What a dropped one has in this member, fit to be shown.
pub(super) fn shown(raw: &Raw, member: &str) -> Option<String> {
    let key: String = raw.read::<Obj>().ok()?.get(member)?;
    Some(clean(&key, 200))
}
