//! Makes what a run says the same every time: its ids, times, processes and paths are replaced by others.

use std::collections::BTreeMap;
use std::path::Path;

use regex::{Captures, Regex};

use crate::stage::Stage;

/// The beginnings of the ids that are put in for those of runs, in the order in which they come up.
const IDS: [&str; 8] =
    ["3f2a6d10", "8b41c7e9", "c05e9f3b", "17d8a264", "e9634b0c", "52ab80d7", "a41f6e38", "6c9d02b5"];
const REST_OF_ID: &str = "-7c1b-4e0a-9d53-2f6a8b1c4e7d";

type Rule = fn(&Captures<'_>) -> String;

/// What is put in for what, for the texts of one stage.
pub(crate) struct Stable {
    root: String,
    ids: BTreeMap<String, &'static str>,
    rules: Vec<(Regex, Rule)>,
}

impl Stable {
    pub(crate) fn new(stage: &Stage) -> Self {
        let root = stage.path("").canonicalize().unwrap();
        let rules: [(&str, Rule); 8] = [
            // How long things took: in a table to the right as before, in a sentence as it comes.
            (r"(?m)^(round \d+ +(?:[a-z]+ )?[a-z]+)( +(?:\d+ms|\d+\.\ds))(  |$)", |found| {
                format!("{}{:>width$}{}", &found[1], "1.2s", &found[3], width = found[2].len())
            }),
            (r"(?m)^([0-9a-f]{8})( +\d+s)(  \w)", |found| {
                format!("{}{:>width$}{}", &found[1], "2s", &found[3], width = found[2].len())
            }),
            (r"\b(in|lasted|for|rounds?,) (?:\d+ms|\d+\.\ds)\b", |found| format!("{} 1.2s", &found[1])),
            (r"\b\d+s ago\b", |_| "2s ago".to_owned()),
            // The live line: its sign of life and the seconds of the round.
            (r"(?m)^[\u{2800}-\u{28ff} ] (round \d+ of \d+)  (.*  )?\d+s(  |$)", |found| {
                let used = found.get(2).map_or("", |used| used.as_str());
                format!("⠹ {}  {used}8s{}", &found[1], &found[3])
            }),
            (r"(\bprocess |\x22pid\x22:|/\d+-\d+#)\d+", |found| format!("{}4711", &found[1])),
            (r"(\x22[a-z]*Ms\x22:)\d+\b", |found| format!("{}1767225600000", &found[1])),
            (r"\bLinux \d[^ :]*", |_| "Linux 6.12.0".to_owned()),
        ];
        Self {
            root: root.to_str().unwrap().trim_end_matches('/').to_owned(),
            ids: BTreeMap::new(),
            rules: rules.map(|(rule, by)| (Regex::new(rule).unwrap(), by)).into(),
        }
    }

    /// Returns `text` as it reads every time.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.root, "/users/ada").replace(env!("CARGO_PKG_VERSION"), "0.0.0");
        for (rule, by) in &self.rules {
            text = rule.replace_all(&text, by).into_owned();
        }
        let id = Regex::new(r"\b([0-9a-f]{8})((?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?\b").unwrap();
        id.replace_all(&text, |found: &Captures<'_>| {
            let next = IDS[self.ids.len().min(IDS.len() - 1)];
            let known = self.ids.entry(found[1].to_owned()).or_insert(next);
            format!("{known}{}", if found.get(2).is_some() { REST_OF_ID } else { "" })
        })
        .into_owned()
    }
}

/// Holds `text` to the file that was looked at last, or writes the file anew.
#[track_caller]
pub(crate) fn check(path: &Path, text: &str) {
    if std::env::var_os("RALPH_LOOP_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let before = std::fs::read_to_string(path).unwrap_or_default();
    if before != text {
        let same = before.lines().zip(text.lines()).take_while(|(before, now)| before == now).count();
        let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
        panic!(
            "{}:{} differs\n  before: {}\n  now:    {}\nlook at it, and write it anew with RALPH_LOOP_UPDATE=1\n\n{text}",
            path.display(),
            same + 1,
            line(&before),
            line(text)
        );
    }
}
