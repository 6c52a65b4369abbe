//! Writes the two JSON Schemas into a folder, or prints them if none is named.
//!
//! `cargo run -p ralph-report --example schema -- crates/ralph-report/schema` brings the committed ones up to date.

use std::{env, fs, io, path::Path};

use ralph_report::schema;

fn main() -> io::Result<()> {
    let schemas = [
        ("child.schema.json", schema::child_schema_json()),
        ("report.schema.json", schema::full_schema_json()),
    ];
    let folder = env::args_os().nth(1);
    for (name, text) in schemas {
        match &folder {
            Some(folder) => fs::write(Path::new(folder).join(name), text)?,
            None => print!("{text}"),
        }
    }
    Ok(())
}
