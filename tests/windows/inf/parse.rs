//! The grammar of an INF file, as far as ours use it: sections, entries, quotes, comments.

/// An INF file, read but not judged.
pub(crate) struct Inf {
    pub(crate) file: String,
    pub(crate) sections: Vec<Section>,
    /// Lines that are no part of an INF, with what is wrong about them.
    pub(crate) malformed: Vec<(usize, String)>,
}

/// `[name]` and the entries under it.
pub(crate) struct Section {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
}

/// `key = value, value` or `value, value`, without the quotes and the comment.
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) key: Option<String>,
    pub(crate) values: Vec<String>,
}

impl Inf {
    pub(crate) fn parse(file: &str, text: &str) -> Self {
        let mut inf = Self { file: file.into(), sections: Vec::new(), malformed: Vec::new() };
        for (line, text) in logical_lines(text) {
            inf.parse_line(line, &text);
        }
        inf
    }

    fn parse_line(&mut self, line: usize, text: &str) {
        if !text.matches('"').count().is_multiple_of(2) {
            self.malformed.push((line, "a quote is left open".into()));
        } else if let Some(rest) = text.strip_prefix('[') {
            match rest.strip_suffix(']') {
                Some(name) => self.sections.push(Section {
                    line,
                    name: name.trim().into(),
                    entries: Vec::new(),
                }),
                None => self.malformed.push((line, "a section's bracket is left open".into())),
            }
        } else if let Some(section) = self.sections.last_mut() {
            section.entries.push(Entry::parse(line, text));
        } else {
            self.malformed.push((line, "an entry stands before the first section".into()));
        }
    }

    /// The section of that name; names are not case sensitive.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name.eq_ignore_ascii_case(name))
    }

    /// `text` with its `%tokens%` replaced out of \[Strings\].
    pub(crate) fn resolve(&self, text: &str) -> String {
        let strings = self.section("Strings");
        tokens(text).into_iter().fold(text.to_owned(), |text, token| {
            match strings.and_then(|strings| strings.value(token)) {
                Some((_, value)) => text.replace(&format!("%{token}%"), value),
                None => text,
            }
        })
    }
}

impl Section {
    /// The entries with that key; keys are not case sensitive.
    pub(crate) fn keyed<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| {
            entry.key.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(key))
        })
    }

    /// The first value of the first entry with that key, and its line.
    pub(crate) fn value(&self, key: &str) -> Option<(usize, &str)> {
        self.keyed(key).next().map(|entry| (entry.line, entry.value(0)))
    }

    /// All values of all entries with that key, which name other sections.
    pub(crate) fn names<'a>(&'a self, key: &str) -> impl Iterator<Item = (usize, &'a str)> {
        self.keyed(key)
            .flat_map(|entry| entry.values.iter().map(|name| (entry.line, name.as_str())))
    }
}

impl Entry {
    fn parse(line: usize, text: &str) -> Self {
        let mut sides = split_unquoted(text, '=');
        let key = (sides.len() > 1).then(|| unquote(sides.remove(0)));
        let values = sides.join("=");
        Self { line, key, values: split_unquoted(&values, ',').into_iter().map(unquote).collect() }
    }

    /// Value number `index`; what is left out is empty.
    pub(crate) fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }

    /// Key and values.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.key.iter().chain(&self.values).map(String::as_str)
    }
}

/// The names between single percent signs; `%%` stands for a percent sign.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        rest = if let Some(literal) = after.strip_prefix('%') {
            literal
        } else if let Some((name, after)) = after.split_once('%') {
            names.push(name);
            after
        } else {
            ""
        };
    }
    names
}

/// Lines without comments and blanks, numbered from 1; a backslash at the end joins the next one.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, raw) in text.lines().enumerate() {
        let bare = split_unquoted(raw, ';')[0].trim();
        let (line, mut joined) = open.take().unwrap_or((index + 1, String::new()));
        match bare.strip_suffix('\\') {
            Some(head) => {
                joined.push_str(head);
                open = Some((line, joined));
            }
            None => {
                joined.push_str(bare);
                lines.push((line, joined));
            }
        }
    }
    lines.extend(open);
    lines.retain(|(_, text)| !text.is_empty());
    lines
}

fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
    .collect()
}

fn unquote(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => text.into(),
    }
}

#[test]
fn grammar() {
    let text = "[A] ; comment\r\nk = \"a, b;=\" , %c%\\d\nHKR, \\\n  x,, \"5%%\"\n\"q\"\"q\"\n";
    let inf = Inf::parse("x", text);
    let [a] = &inf.sections[..] else { panic!("one section") };
    let seen: Vec<_> =
        a.entries.iter().map(|e| (e.line, e.key.as_deref(), e.values.join("|"))).collect();
    assert_eq!(
        seen,
        [
            (2, Some("k"), r"a, b;=|%c%\d".into()),
            (3, None, "HKR|x||5%%".into()),
            (5, None, "q\"q".into()),
        ]
    );
    assert_eq!(tokens(r"%13%\a %%x%% %b%"), ["13", "b"]);
    assert!(inf.malformed.is_empty());
}
