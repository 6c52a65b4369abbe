//! The inventory of the original's cases names tests that exist.

#[test]
fn every_case_names_a_test_or_says_why_there_is_none() {
    let inventory = include_str!("../../inventory.md");
    let sources = [
        ("abort", include_str!("abort.rs")),
        ("calls", include_str!("calls.rs")),
        ("committed_vectors", include_str!("committed_vectors.rs")),
        ("configuration", include_str!("configuration.rs")),
        ("decoding", include_str!("decoding.rs")),
        ("errors", include_str!("errors.rs")),
        ("hosts", include_str!("hosts.rs")),
        ("presentation", include_str!("presentation.rs")),
        ("refusals", include_str!("refusals.rs")),
        ("rendering", include_str!("rendering.rs")),
        ("rounds", include_str!("rounds.rs")),
    ];
    let mut cases = 0;
    for line in inventory.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Case")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [case, judged_by] = cells[..] else { panic!("a case has two cells: {line}") };
        let names: Vec<&str> = judged_by.split('`').filter(|part| part.contains("::")).collect();
        assert!(!names.is_empty() || judged_by.starts_with("None: "), "{case}: no test and no reason");
        for name in names {
            let (module, test) = name.split_once("::").unwrap();
            let source = sources.iter().find(|(known, _)| *known == module);
            let (_, source) = source.unwrap_or_else(|| panic!("{case}: no module {module}"));
            assert!(source.contains(&format!("fn {test}(")), "{case}: no test {name}");
        }
        cases += 1;
    }
    assert_eq!(cases, 23, "15 cases of the tool and 8 of whole runs");
}
