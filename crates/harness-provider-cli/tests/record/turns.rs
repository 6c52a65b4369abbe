//! The turns of a fixture, which are written as JSON.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use harness_testkit::model_server::{ToolCall, Turn, TurnUsage};
use serde_json::{Map, Value};

pub(crate) fn read(text: &str) -> Result<Vec<Turn>> {
    let turns: Vec<Map<String, Value>> = serde_json::from_str(text).context("`turns`")?;
    turns.into_iter().map(turn).collect()
}

/// Reads one turn. Every key must mean something.
fn turn(mut keys: Map<String, Value>) -> Result<Turn> {
    let shown = Value::from(keys.clone());
    let mut take = |name: &str| keys.remove(name);
    let said = take("text");
    let mut turn = if let Some(tool) = take("tool") {
        Turn::call(word(&tool)?, take("input").unwrap_or_default())
    } else if let Some(Value::Array(choices)) = take("choices") {
        let call = |choice: &Value| Ok(ToolCall::new(word(&choice["name"])?, choice["input"].clone()));
        Turn::first_offered(choices.iter().map(call).collect::<Result<Vec<_>>>()?)
    } else if let Some(value) = take("structured") {
        match take("via").as_ref().map(word).transpose()? {
            None => Turn::value(value),
            Some("text") => Turn::value_as_text(value),
            Some(tool) => Turn::call(tool, value),
        }
    } else if let Some(status) = take("error") {
        error(&status, &mut take)?
    } else if let Some(limit) = take("hang") {
        match limit.as_u64() {
            Some(seconds) => Turn::hang_for(Duration::from_secs(seconds)),
            None => Turn::hang(),
        }
    } else if let Some(when) = take("disconnect") {
        if word(&when)? == "mid" { Turn::disconnect().mid_stream() } else { Turn::disconnect() }
    } else {
        Turn::calls([])
    };
    if let Some(said) = said {
        turn = turn.saying(word(&said)?);
    }
    match take("stop").as_ref().map(word).transpose()? {
        None => {}
        Some("max_tokens") => turn = turn.truncated(),
        Some("refusal") => turn = turn.refused(),
        Some(other) => bail!("nothing stops as {other}"),
    }
    match take("repeat") {
        None => {}
        Some(Value::String(_)) => turn = turn.forever(),
        Some(times) => turn = turn.times(number(&times)?.try_into()?),
    }
    if let Some(usage) = take("usage") {
        let cached = usage["cached"].as_u64().unwrap_or_default();
        turn = turn.with_usage(
            TurnUsage::new(number(&usage["input"])?, number(&usage["output"])?).with_cached(cached),
        );
    }
    match keys.keys().next() {
        Some(key) => bail!("`{key}` means nothing in {shown}"),
        None => Ok(turn),
    }
}

fn error(status: &Value, take: &mut impl FnMut(&str) -> Option<Value>) -> Result<Turn> {
    let mut turn = Turn::error(number(status)?.try_into()?);
    if let Some(message) = take("message") {
        turn = turn.with_message(word(&message)?);
    }
    if let Some(kind) = take("type") {
        turn = turn.with_kind(word(&kind)?);
    }
    if let Some(seconds) = take("retry_after") {
        turn = turn.with_retry_after(number(&seconds)?);
    }
    if let Some(Value::Object(headers)) = take("headers") {
        for (name, value) in &headers {
            turn = turn.with_header(name, word(value)?);
        }
    }
    if take("mid_stream") == Some(Value::Bool(true)) {
        turn = turn.mid_stream();
    }
    Ok(turn)
}

fn word(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no number"))
}
