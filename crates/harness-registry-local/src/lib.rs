//! The in-process subagent registry: providers by name, checked starts, limits, lifecycle events.
