//! The pictures of the guide, made from real runs on a terminal. `cargo xtask captures --write` makes them anew.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use textwrap::core::display_width;
use vt100::{Cell, Color, Screen};

use crate::pty::{COLUMNS, ROWS, Terminal};
use crate::stable::{self, Stable};
use crate::stage::{Stage, hand_in};

/// What was typed, and what was seen then.
struct Capture<'a> {
    stage: &'a Stage,
    typed: &'a str,
}

impl Capture<'_> {
    fn start(&self) -> Terminal {
        let words: Vec<_> = split(self.typed);
        let (program, arguments) = words.split_first().unwrap();
        assert_eq!(program, "ralph-loop");
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Terminal::start(self.stage, &arguments, &[])
    }

    /// Lets it run to its end, and keeps what is on the screen then.
    #[track_caller]
    fn keep(&self, stable: &mut Stable, name: &str) {
        let mut terminal = self.start();
        terminal.end();
        self.keep_screen(stable, &terminal.screen(), name);
    }

    #[track_caller]
    fn keep_screen(&self, stable: &mut Stable, screen: &Screen, name: &str) {
        let mut rows = vec![Row::typed(self.typed)];
        rows.extend((0..ROWS).map(|row| Row::of(screen, row)));
        // Any test that runs now may be the one that ends, and tells, what a killed runner has left.
        rows.retain(|row| !row.text.starts_with("ended what a killed runner had left"));
        while rows.last().is_some_and(|row| row.text.is_empty()) {
            rows.pop();
        }
        for row in &mut rows {
            row.settle(stable);
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/captures").join(name);
        stable::check(&path, &svg(&stable.text(self.typed), &rows));
    }
}

/// Takes the words of a command apart that has no quotes but around whole words.
fn split(typed: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = typed;
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
struct Look {
    color: Option<u8>,
    bold: bool,
    dim: bool,
}

/// One line of the screen: its text, and how each of its characters looks.
struct Row {
    text: String,
    looks: Vec<Look>,
}

impl Row {
    fn typed(command: &str) -> Self {
        let text = format!("$ {command}");
        let bold = Look { bold: true, ..Look::default() };
        let looks = text.chars().enumerate().map(|(at, _)| if at < 2 { Look::default() } else { bold });
        Self { looks: looks.collect(), text }
    }

    fn of(screen: &Screen, row: u16) -> Self {
        let cells = (0..COLUMNS).filter_map(|column| screen.cell(row, column));
        let mut line = Self { text: String::new(), looks: Vec::new() };
        for cell in cells.filter(|cell| !cell.is_wide_continuation()) {
            let text = if cell.has_contents() { cell.contents() } else { " " };
            line.text.push_str(text);
            line.looks.extend(text.chars().map(|_| look(cell)));
        }
        line.cut();
        line
    }

    /// Puts in what reads the same every time. What is put in looks as what was there.
    fn settle(&mut self, stable: &mut Stable) {
        let settled = stable.text(&self.text);
        let (old, new): (Vec<_>, Vec<_>) = (self.text.chars().collect(), settled.chars().collect());
        let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let tail = old[same..].iter().rev().zip(new[same..].iter().rev()).take_while(|(old, new)| old == new);
        let tail = tail.count();
        let middle = self.looks.get(same).copied().unwrap_or_default();
        let mut looks = self.looks[..same].to_vec();
        // Where several things were replaced, what stands between them keeps its look by its place.
        let between = &self.looks[same..old.len() - tail];
        looks.extend((0..new.len() - tail - same).map(|at| between.get(at).copied().unwrap_or(middle)));
        looks.extend_from_slice(&self.looks[old.len() - tail..]);
        // A word that was put in has one look, that of its end: numbers stand to the right.
        for at in (same..new.len() - tail).rev() {
            if let (Some(next), false) = (new.get(at + 1), new[at] == ' ')
                && *next != ' '
            {
                looks[at] = looks[at + 1];
            }
        }
        (self.text, self.looks) = (settled, looks);
        self.cut();
    }

    fn cut(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        self.looks.truncate(self.text.chars().count());
    }
}

fn look(cell: &Cell) -> Look {
    let color = match cell.fgcolor() {
        Color::Idx(index) => Some(index),
        _ => None,
    };
    Look { color, bold: cell.bold(), dim: cell.dim() }
}

/// Draws the rows. Every run of one look is placed by its column, so that no font can push it away.
fn svg(title: &str, rows: &[Row]) -> String {
    const ADVANCE: f64 = 8.4;
    const LINE: f64 = 19.0;
    const MARGIN: f64 = 16.0;
    let width = f64::from(COLUMNS) * ADVANCE + 2.0 * MARGIN;
    let height = rows.len() as f64 * LINE + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n\
         <style>text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d8dee9;white-space:pre}}\
         .b{{font-weight:bold;fill:#eceff4}}.d{{fill:#8792a5}}.c1{{fill:#ef7b85}}.c2{{fill:#a3be8c}}.c3{{fill:#ebcb8b}}.c4{{fill:#81a1c1}}\
         .c6{{fill:#88c0d0}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#20242c\"/>\n",
        escaped(title)
    );
    for (number, row) in rows.iter().enumerate() {
        let y = MARGIN + number as f64 * LINE + 14.0;
        let mut column = 0;
        let mut characters = row.text.chars().zip(&row.looks).peekable();
        while let Some((first, look)) = characters.next() {
            let mut text = String::from(first);
            while let Some((next, _)) = characters.next_if(|(_, next)| *next == look) {
                text.push(next);
            }
            // Several blanks in a row would be drawn as one.
            for (at, shown) in pieces(&text) {
                let x = MARGIN + (column + display_width(&text[..at])) as f64 * ADVANCE;
                let length = display_width(shown) as f64 * ADVANCE;
                writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\"{}>{}</text>",
                    class(*look),
                    escaped(shown)
                )
                .unwrap();
            }
            column += display_width(&text);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The parts of a text between several blanks, with their places.
fn pieces(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split("  ").filter_map(move |part| {
        let start = at + part.len() - part.trim_start().len();
        at += part.len() + 2;
        Some((start, part.trim())).filter(|(_, part)| !part.is_empty())
    })
}

fn class(look: Look) -> String {
    let mut classes = Vec::new();
    classes.extend(look.color.map(|color| format!("c{color}")));
    classes.extend(look.bold.then(|| "b".to_owned()));
    classes.extend(look.dim.then(|| "d".to_owned()));
    if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const STEPS: [&str; 3] = [
    r#"{"status":"continue","summary":"Moved the parser tests to the new harness; the printer tests are left.","evidence":["cargo test parser: 41 passed"],"nextSteps":["Move the printer tests"],"blocker":""}"#,
    r#"{"status":"continue","summary":"Moved the printer tests; one of them shows a bug with wide characters.","evidence":["cargo test printer: 17 passed, 1 failed"],"nextSteps":["Correct the width of wide characters"],"blocker":""}"#,
    r#"{"status":"complete","summary":"Wide characters count two columns now, and all tests pass.","evidence":["cargo test: 62 passed, 0 failed"],"nextSteps":[],"blocker":""}"#,
];

/// An agent that has done something like it before, as the only one that is declared.
fn working_stage() -> Stage {
    let stage = Stage::of_fixed_length();
    let steps: Vec<_> = (1..).zip(STEPS).map(|(call, step)| format!("{call}) {};;", hand_in(step))).collect();
    let script = format!(
        "echo \"// round $HARNESS_CALL\" >> progress.rs\n\
         case $HARNESS_CALL in 2) echo 'moving tests/printer.rs'; while [ -e \"$HOME/hold\" ]; do sleep 0.05; done;; esac\n\
         case $HARNESS_CALL in\n{}\nesac",
        steps.join("\n")
    );
    let path = stage.script("agent.sh", &script);
    fs::rename(path, stage.file("my-agent.sh")).unwrap();
    let settings = "max-rounds = 30\nround-limit = \"45m\"\n\n[agents.mine]\ncommand = [\"./my-agent.sh\"]\n";
    fs::write(stage.file("ralph-loop.toml"), settings).unwrap();
    stage.git(&["init", "-q", "-b", "main"]);
    stage.git(&["add", "-A"]);
    stage.git(&["commit", "-q", "-m", "the old harness"]);
    stage
}

#[test]
fn the_demo() {
    let stage = Stage::of_fixed_length();
    let mut stable = Stable::new(&stage);
    Capture { stage: &stage, typed: "ralph-loop demo" }.keep(&mut stable, "demo.svg");
}

#[test]
fn a_night() {
    let stage = working_stage();
    let mut stable = Stable::new(&stage);
    Capture { stage: &stage, typed: "ralph-loop doctor" }.keep(&mut stable, "doctor.svg");
    Capture { stage: &stage, typed: "ralph-loop config" }.keep(&mut stable, "config.svg");

    // Held in the middle of a round, and killed there.
    fs::write(stage.path("hold"), "").unwrap();
    let night = Capture { stage: &stage, typed: "ralph-loop run \"move all tests to the new harness\"" };
    let terminal = night.start();
    terminal.wait_for("moving tests/printer.rs");
    night.keep_screen(&mut stable, &terminal.screen(), "live.svg");
    terminal.signal(Signal::KILL);
    drop(terminal);
    fs::remove_file(stage.path("hold")).unwrap();

    let run = stage.runs().remove(0);
    let resume = format!("ralph-loop resume {}", &run[..8]);
    Capture { stage: &stage, typed: &resume }.keep(&mut stable, "resume.svg");
    let blocked = r#"{"status":"blocked","summary":"The release needs a key that is not here.","evidence":["cargo publish: 403"],"nextSteps":[],"blocker":"Somebody has to log in to the registry here."}"#;
    let agent = stage.script("blocked.sh", &hand_in(blocked));
    stage.say(&["run", "publish the crate", "--", &agent]).with_status(10);
    Capture { stage: &stage, typed: "ralph-loop runs" }.keep(&mut stable, "runs.svg");
    let show = format!("ralph-loop show {}", &run[..8]);
    Capture { stage: &stage, typed: &show }.keep(&mut stable, "show.svg");
}

#[test]
fn bad_reports() {
    let stage = Stage::of_fixed_length();
    let mut stable = Stable::new(&stage);
    let report = r#"{"status":"complete","summary":"It works.","evidence":[],"nextSteps":["Test it"]}"#;
    fs::write(stage.file("report.json"), report).unwrap();
    Capture { stage: &stage, typed: "ralph-loop validate report.json" }.keep(&mut stable, "validate.svg");
}
