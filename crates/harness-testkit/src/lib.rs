//! The test kit of the harness seams: scripted doubles, conformance suites, strategies.
