//! The subagent contract of an agent harness: providers, the registry, runs and results.
