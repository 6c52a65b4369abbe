//! What differs from one recording to the next, made the same.

use std::collections::HashMap;
use std::path::Path;

/// Replaces ids by numbers in the order in which they appear, and the places and ports of this recording by fixed ones.
#[derive(Debug)]
pub(crate) struct Normal {
    replaced: Vec<(String, String)>,
    ids: HashMap<String, usize>,
}

impl Normal {
    pub(crate) fn new(root: &Path, port: u16) -> Self {
        let root = root.display();
        let replaced = vec![
            (format!("{root}/workspace"), "/workspace".to_owned()),
            (root.to_string(), "/recording".to_owned()),
            (format!("127.0.0.1:{port}"), "127.0.0.1:1".to_owned()),
        ];
        Self { replaced, ids: HashMap::new() }
    }

    pub(crate) fn lines<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> String {
        lines.map(|line| self.line(line) + "\n").collect()
    }

    fn line(&mut self, line: &str) -> String {
        let line = self.replaced.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        let mut text = String::new();
        let mut rest = line.as_str();
        while let Some((at, length)) = (0..rest.len()).find_map(|at| Some((at, id(rest, at)?))) {
            let next = self.ids.len() + 1;
            let number = *self.ids.entry(rest[at..at + length].to_owned()).or_insert(next);
            text.push_str(&rest[..at]);
            match KINDS.iter().find(|kind| rest[at..].starts_with(**kind)) {
                Some(kind) => text.push_str(&format!("{kind}{number:026}")),
                None => text.push_str(&format!("00000000-0000-4000-8000-{number:012}")),
            }
            rest = &rest[at + length..];
        }
        text + rest
    }
}

/// How opencode's ids begin, before 26 letters and digits.
const KINDS: [&str; 3] = ["ses_", "msg_", "prt_"];

/// Returns the length of the id that is there, if one is.
fn id(text: &str, at: usize) -> Option<usize> {
    let here = text.get(at..)?;
    if here.get(..LENGTH).is_some_and(is_id) {
        return Some(LENGTH);
    }
    let kind = KINDS.iter().find(|kind| here.starts_with(**kind))?;
    let length = kind.len() + 26;
    let rest = here.get(kind.len()..length)?;
    rest.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(length)
}

/// Of a UUID.
const LENGTH: usize = 36;

fn is_id(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
