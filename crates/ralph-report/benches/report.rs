//! What validation costs, against decoding the same bytes into a plain typed struct.
//!
//! Ours and the anchor take turns, in short batches and many sweeps; a row's ratio is the median of the sweeps'
//! ratios. Prints a table, and as its last line the same as JSON. It judges its targets and never fails on them.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]
#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
    time::{Duration, Instant},
};

use ralph_report::{Limits, RoundReport, RoundReportRef, text};
use serde::Deserialize;
use serde_json::json;

/// What a program has that decodes a report with `serde_json` and leaves it at that.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "decoding fills the fields, nobody reads them")]
struct Plain {
    status: PlainStatus,
    summary: String,
    evidence: Vec<String>,
    next_steps: Vec<String>,
    blocker: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlainStatus {
    Continue,
    Complete,
    Blocked,
}

fn main() {
    let samples = [
        ("600 B", report_of(600, ASCII)),
        ("16 KB ascii", report_of(16_000, ASCII)),
        ("16 KB mixed scripts", report_of(16_000, MIXED)),
    ];
    let limits = Limits::default();
    let mut rows = Vec::new();
    for (size, report) in &samples {
        let bytes = report.to_json().into_bytes();
        let anchor = || drop(black_box(serde_json::from_slice::<Plain>(black_box(&bytes)).unwrap()));
        let borrowed = || drop(black_box(RoundReportRef::parse(black_box(&bytes), &limits).unwrap()));
        let owned = || drop(black_box(RoundReport::parse(black_box(&bytes), &limits).unwrap()));
        let measure = || _ = black_box(black_box(report).serialized_len());

        rows.push(compare(
            format!("report {size}: bytes to accepted, borrowed"),
            borrowed,
            anchor,
            Some(1.2),
        ));
        rows.push(compare(format!("report {size}: bytes to accepted, owned"), owned, anchor, None));
        rows.push(compare(format!("report {size}: size measure alone"), measure, anchor, Some(0.4)));
        rows.push(count(format!("report {size}: allocations, borrowed"), borrowed, anchor));
        rows.push(count(format!("report {size}: allocations, owned"), owned, anchor));
        rows.push(count(format!("report {size}: allocations, size measure"), measure, anchor));
    }
    for row in &rows {
        row.print();
    }
    println!("{}", serde_json::Value::from_iter(rows.iter().map(Row::to_json)));
}

const ASCII: &[&str] = &[
    "Ported the tokenizer and wired it into the parser; all 214 unit tests pass.",
    "cargo test --workspace: 214 passed, 0 failed",
    "src/parser/mod.rs:120 still panics on an empty \"include\" line",
    "Replace the remaining unwrap calls in driver.rs with typed errors",
];

const MIXED: &[&str] = &[
    "Портирован разбор чисел; 全部测试通过 (214 件), nothing left to port.",
    "données vérifiées à l’œil nu, ñandú größer – ελληνικά κείμενα",
    "日本語の要約と 한국어 요약을 확인했습니다 ✅🚀",
    "הטקסט נבדק، النص تم فحصه, hindi: परीक्षण सफल रहा 👩‍💻",
];

/// Makes a report whose canonical JSON has about `units` UTF-16 code units.
fn report_of(units: usize, phrases: &[&str]) -> RoundReport {
    let mut evidence = Vec::new();
    let mut next_steps = Vec::new();
    let mut report = json!({"status": "continue", "summary": phrases[0], "blocker": ""});
    for at in 1.. {
        let list = if at % 2 == 0 { &mut evidence } else { &mut next_steps };
        // Texts of one to four phrases.
        list.push(
            (0..=at % 4).map(|more| phrases[(at + more) % phrases.len()]).collect::<Vec<_>>().join(" "),
        );
        report["evidence"] = json!(evidence);
        report["nextSteps"] = json!(next_steps);
        if text::utf16_len(&report.to_string()) >= units {
            break;
        }
    }
    RoundReport::from_value(&report, &Limits::default()).unwrap()
}

/// One line of the result.
struct Row {
    what: String,
    ours: String,
    anchor: String,
    ratio: f64,
    spread: [f64; 2],
    target: Option<f64>,
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.ratio <= target)
    }

    fn print(&self) {
        let Self { what, ours, anchor, ratio, spread: [least, most], target } = self;
        let verdict = match (target, self.is_met()) {
            (Some(target), Some(met)) => format!("target {target}: {}", if met { "met" } else { "NOT MET" }),
            _ => "no target".to_owned(),
        };
        println!("{what:48} {ours:>10} / {anchor:>10} = {ratio:5.2} [{least:.2}, {most:.2}]  {verdict}");
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "what": self.what,
            "ours": self.ours,
            "anchor": self.anchor,
            "ratio": self.ratio,
            "spread": self.spread,
            "target": self.target,
            "met": self.is_met(),
        })
    }
}

/// Times both in turn.
fn compare(what: String, ours: impl Fn(), anchor: impl Fn(), target: Option<f64>) -> Row {
    const SWEEPS: usize = 11;

    let (ours_calls, anchor_calls) = (calls_per_batch(&ours), calls_per_batch(&anchor));
    let mut sweeps: Vec<[f64; 2]> = (0..SWEEPS)
        .map(|_| {
            const BATCHES: usize = 21;
            let mut times = [const { Vec::new() }; 2];
            for _ in 0..BATCHES {
                times[0].push(time_per_call(ours_calls, &ours));
                times[1].push(time_per_call(anchor_calls, &anchor));
            }
            // A batch that another program interrupted is an outlier, not a measurement.
            times.map(median)
        })
        .collect();
    sweeps.sort_by(|a, b| (a[0] / a[1]).total_cmp(&(b[0] / b[1])));
    let ratio = |[ours, anchor]: [f64; 2]| round(ours / anchor);
    let middle = sweeps[SWEEPS / 2];
    Row {
        what,
        ours: format!("{:.0} ns", middle[0]),
        anchor: format!("{:.0} ns", middle[1]),
        ratio: ratio(middle),
        spread: [ratio(sweeps[0]), ratio(sweeps[SWEEPS - 1])],
        target,
    }
}

/// Finds how many calls fill a batch that is long against the clock and short against a time slice.
fn calls_per_batch(call: &impl Fn()) -> u32 {
    const BATCH: Duration = Duration::from_micros(200);

    let mut calls = 1;
    loop {
        let per_call = time_per_call(calls, call);
        if per_call * f64::from(calls) >= BATCH.as_nanos() as f64 {
            return calls;
        }
        calls *= 2;
    }
}

/// Returns nanoseconds.
fn time_per_call(calls: u32, call: &impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn round(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

/// Counts the allocations of one call of each.
fn count(what: String, ours: impl Fn(), anchor: impl Fn()) -> Row {
    let [ours, anchor] = [allocations(ours), allocations(anchor)];
    let ratio = round(ours as f64 / anchor as f64);
    Row { what, ours: ours.to_string(), anchor: anchor.to_string(), ratio, spread: [ratio; 2], target: None }
}

fn allocations(call: impl Fn()) -> u64 {
    let before = ALLOCATIONS.get();
    call();
    ALLOCATIONS.get() - before
}

/// The system's allocator, which counts how often this thread asks it for memory.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory that is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}
