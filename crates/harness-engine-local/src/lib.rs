//! The embedded workflow engine: in-process, on tokio, with a durable journal.
