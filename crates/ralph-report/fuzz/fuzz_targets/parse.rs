//! Feeds bytes to the parser and holds the verdict to what must be true of it whatever they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_report::{Limits, RoundReport, RoundReportRef, Status, ViolationKind};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    // Small limits, so that small inputs reach them.
    let limits = Limits::default().with_max_bytes(2048).with_max_report_chars(300).with_max_depth(6);
    let judged = RoundReport::parse(bytes, &limits);
    let document: Option<Value> = serde_json::from_slice(bytes).ok();

    match &judged {
        Ok(report) => {
            let text = report.to_json();
            assert_eq!(report.serialized_len(), text.encode_utf16().count());
            assert!(report.serialized_len() <= 300);
            assert_eq!(Some(report.to_value()), document, "what was accepted is what was said");
            assert_eq!(RoundReport::parse(&text, &limits).as_ref(), Ok(report));
            assert_eq!(RoundReport::parse(report.to_json_pretty(), &limits).as_ref(), Ok(report));
        }
        Err(refusal) => {
            assert!(!refusal.violations().is_empty() && refusal.violations().len() <= 100);
            for violation in refusal.violations() {
                assert!(violation.pointer().len() <= 256);
                assert!(violation.to_string().chars().all(|c| !c.is_control()));
            }
            match refusal.category() {
                ViolationKind::InputOversized => assert!(bytes.len() > 2048),
                ViolationKind::NestingLimit => {}
                ViolationKind::Unparsable => assert_eq!(document, None),
                _ => assert!(document.is_some()),
            }
        }
    }
    assert_eq!(RoundReportRef::parse(bytes, &limits).map(RoundReportRef::into_owned), judged);

    // The value knows nothing of bytes, levels and duplicate keys; in all else it meets the same verdict.
    let is_about_text = judged.as_ref().is_err_and(|refusal| {
        use ViolationKind::{DuplicateKey, InputOversized, NestingLimit, Unparsable};
        matches!(refusal.category(), DuplicateKey | InputOversized | NestingLimit | Unparsable)
    });
    if let (Some(document), false) = (&document, is_about_text) {
        assert_eq!(RoundReport::from_value(document, &limits), judged);
    }

    for expected in Status::ALL {
        let as_expected = judged.clone().ok().filter(|report| report.status() == expected);
        assert_eq!(RoundReport::parse_as(bytes, expected, &limits).ok(), as_expected);
    }
});
