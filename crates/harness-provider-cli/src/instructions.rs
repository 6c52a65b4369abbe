//! What a child is told about handing in its value.

use std::path::Path;

use harness_subagent::OutputViolation;

/// Appends one paragraph to `prompt` that says how to hand in a value by writing a file.
pub(crate) fn by_file(prompt: String, schema: &str, path: &Path) -> String {
    let path = path.to_string_lossy();
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
    let parts = ["\n\n", how, " The document must match this JSON Schema: ", schema, "\n"];
    prompt.reserve_exact(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| prompt.push_str(part));
    prompt
}

/// Appends one paragraph to `prompt` that says `how` to hand in a value.
#[must_use]
pub fn with_how(mut prompt: String, how: &str) -> String {
    let paragraph = format!("\n\nWhen you are done, hand in your result {how}.\n");
    prompt.reserve_exact(paragraph.len());
    prompt.push_str(&paragraph);
    prompt
}

/// What a child is told that has ended its turn without a value.
#[must_use]
pub fn missing(how: &str) -> String {
    format!("You have ended your turn without handing in your result. Hand it in now, {how}.")
}

/// What a child is told whose value is refused, with the most important violations.
pub(crate) fn refused(violations: &[OutputViolation], how: &str) -> String {
    const MOST: usize = 20;
    let mut text = String::from("The result that you handed in is refused:\n");
    for violation in violations.iter().take(MOST) {
        let place = if violation.pointer.is_empty() { "the whole" } else { &violation.pointer };
        text.push_str(&format!("- {place}: {} ({})\n", violation.message, violation.kind));
    }
    if violations.len() > MOST {
        text.push_str(&format!("- and {} more\n", violations.len() - MOST));
    }
    text.push_str(&format!("Correct this and hand in the whole result again, {how}."));
    text
}
