//! The two JSON Schemas.

use ralph_report::schema;

#[test]
fn the_committed_schemas_are_fresh() {
    let remedy = "run `cargo run -p ralph-report --example schema -- crates/ralph-report/schema`";
    assert_eq!(schema::child_schema_json(), include_str!("../../schema/child.schema.json"), "{remedy}");
    assert_eq!(schema::full_schema_json(), include_str!("../../schema/report.schema.json"), "{remedy}");
}
