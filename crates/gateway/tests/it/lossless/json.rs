//! A JSON text as its tokens: the order of members, the spelling of names and the digits of numbers are what they
//! were; blanks between tokens are not kept. It reads nothing as a value, so it cannot lose one.

use std::fmt;

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Names are tokens, with their quotes and escapes.
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    /// A string, a number or a word.
    Token(String),
}

impl Node {
    pub(super) fn parse(text: &str) -> Node {
        let mut reader = Reader { text, at: 0 };
        reader.blanks();
        let node = reader.value();
        reader.blanks();
        assert_eq!(reader.at, text.len(), "more than one value: {text}");
        node
    }

    pub(super) fn object() -> Node {
        Node::Object(Vec::new())
    }

    pub(super) fn string(text: &str) -> Node {
        Node::Token(serde_json::Value::from(text).to_string())
    }

    fn members(&self) -> &[(String, Node)] {
        match self {
            Node::Object(members) => members,
            Node::List(_) | Node::Token(_) => &[],
        }
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self, Node::Object(_))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.members().iter().map(|(name, _)| unescaped(name)).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Node> {
        self.members().iter().map(|(_, value)| value)
    }

    /// The same, with the members of each value in the order of their names.
    pub(super) fn with_sorted_values(&self) -> Node {
        match self {
            Node::Object(members) => {
                let sorted = members.iter().map(|(name, value)| (name.clone(), value.sorted()));
                Node::Object(sorted.collect())
            }
            Node::List(_) | Node::Token(_) => self.clone(),
        }
    }

    fn sorted(&self) -> Node {
        match self {
            Node::Object(_) => match self.with_sorted_values() {
                Node::Object(mut members) => {
                    members.sort_by(|(one, _), (other, _)| one.cmp(other));
                    Node::Object(members)
                }
                other @ (Node::List(_) | Node::Token(_)) => other,
            },
            Node::List(items) => Node::List(items.iter().map(Node::sorted).collect()),
            Node::Token(_) => self.clone(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        let found = self.members().iter().find(|(own, _)| unescaped(own) == name);
        found.map(|(_, value)| value)
    }

    /// Down this path of members.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    pub(super) fn items(&self) -> &[Node] {
        match self {
            Node::List(items) => items,
            Node::Object(_) | Node::Token(_) => &[],
        }
    }

    /// A string without its quotes and escapes.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Node::Token(token) if token.starts_with('"') => Some(unescaped(token)),
            Node::Token(_) | Node::Object(_) | Node::List(_) => None,
        }
    }

    pub(super) fn text_at(&self, path: &[&str]) -> Option<String> {
        self.at(path).and_then(Node::text)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Node> {
        let Node::Object(members) = self else { return None };
        let at = members.iter().position(|(own, _)| unescaped(own) == name)?;
        Some(members.remove(at).1)
    }

    /// In its place, or at the end.
    pub(super) fn set(&mut self, name: &str, value: Node) {
        let Node::Object(members) = self else {
            panic!("no object")
        };
        match members.iter_mut().find(|(own, _)| unescaped(own) == name) {
            Some((_, old)) => *old = value,
            None => members.push((Node::string(name).to_string(), value)),
        }
    }

    /// Before all others.
    pub(super) fn lead(&mut self, name: &str, value: Node) {
        let Node::Object(members) = self else {
            panic!("no object")
        };
        members.insert(0, (Node::string(name).to_string(), value));
    }

    /// Keeps the members of this object whose names are wanted; says whether any went.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) -> bool {
        let Node::Object(members) = self else { return false };
        let before = members.len();
        members.retain(|(name, _)| wanted(&unescaped(name)));
        members.len() != before
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Token(token) => f.write_str(token),
            Node::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Node::Object(members) => {
                f.write_str("{")?;
                for (index, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{name}:{value}", if index > 0 { "," } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

fn unescaped(token: &str) -> String {
    serde_json::from_str(token).unwrap_or_else(|_| token.to_owned())
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn next(&self) -> u8 {
        self.text.as_bytes()[self.at]
    }

    fn blanks(&mut self) {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| blank(byte)).count();
    }

    fn value(&mut self) -> Node {
        match self.next() {
            b'{' => {
                let members = self.several(b'}', |reader| {
                    let name = reader.string();
                    reader.blanks();
                    assert_eq!(reader.next(), b':', "at {} of {}", reader.at, reader.text);
                    reader.at += 1;
                    reader.blanks();
                    (name, reader.value())
                });
                Node::Object(members)
            }
            b'[' => Node::List(self.several(b']', Reader::value)),
            b'"' => Node::Token(self.string()),
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                let length = rest.iter().take_while(|byte| !ends(byte)).count();
                assert!(length > 0, "no value at {} of {}", self.at, self.text);
                let token = self.text[self.at..self.at + length].to_owned();
                self.at += length;
                Node::Token(token)
            }
        }
    }

    fn several<T>(&mut self, end: u8, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        let mut all = Vec::new();
        self.at += 1;
        self.blanks();
        while self.next() != end {
            all.push(one(self));
            self.blanks();
            if self.next() == b',' {
                self.at += 1;
                self.blanks();
            }
        }
        self.at += 1;
        all
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while self.next() != b'"' {
            self.at += if self.next() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        self.text[start..self.at].to_owned()
    }
}
