//! The workflow contract of an agent harness: engines, bodies, runs, results and events.
