//! What a child is told about handing in its value.

use std::path::Path;

/// Appends one paragraph to `prompt` that says how to hand in a value by writing a file.
pub(crate) fn by_file(prompt: String, schema: &str, path: &Path) -> String {
    let path = path.display();
    with_paragraph(
        prompt,
        schema,
        &format!(
            "When you are done, hand in your result as exactly one JSON document in the file {path} (the \
             environment variable {variable} holds this path too). Write the whole document at once, as the last \
             thing you do; nothing you say elsewhere counts as your result.",
            variable = crate::VALUE_FILE
        ),
    )
}

/// Appends one paragraph to `prompt` that says how to hand in a value on standard output.
pub(crate) fn by_standard_output(prompt: String, schema: &str) -> String {
    with_paragraph(
        prompt,
        schema,
        "When you are done, hand in your result by printing exactly one JSON document to standard output. Print \
         nothing else there: no words before or after it, and no code fence around it.",
    )
}

/// Takes the prompt and gives it back, as there is no need to have megabytes of it twice.
fn with_paragraph(mut prompt: String, schema: &str, how: &str) -> String {
    let paragraph = format!("\n\n{how} The document must match this JSON Schema: {schema}\n");
    prompt.reserve_exact(paragraph.len());
    prompt.push_str(&paragraph);
    prompt
}
