//! The round report of a Ralph loop: its schema, its validator, its size measure and its violations.
