//! What an agent says that its session has used.

use agent_client_protocol_schema::v1 as acp;
use harness_subagent::Usage;

/// Puts together what the end of the prompt and the last update said. Nothing was said by an agent of which we know
/// neither.
pub(crate) fn usage(tokens: Option<&acp::Usage>, cost: Option<&acp::Cost>) -> Option<Usage> {
    let cost = cost.and_then(micro_dollars);
    let usage = match (tokens, cost) {
        (Some(tokens), _) => counted(tokens),
        // Of some ends only the cost is told, and it must not get lost.
        (None, Some(_)) => Usage::default(),
        (None, None) => return None,
    };
    Some(match cost {
        Some(cost) => usage.with_cost_usd_micros(cost),
        None => usage,
    })
}

/// The protocol does not say whether cached tokens are among the input and thoughts among the output. The total does.
fn counted(tokens: &acp::Usage) -> Usage {
    let cached = tokens.cached_read_tokens.unwrap_or(0);
    let beside = cached.saturating_add(tokens.cached_write_tokens.unwrap_or(0));
    let thought = tokens.thought_tokens.unwrap_or(0);
    let input = [tokens.input_tokens, tokens.input_tokens.saturating_add(beside)];
    let output = [tokens.output_tokens, tokens.output_tokens.saturating_add(thought)];
    let sums = [(input[0], output[0]), (input[1], output[0]), (input[0], output[1]), (input[1], output[1])];
    let (input, output) = sums
        .into_iter()
        .find(|(input, output)| input.saturating_add(*output) == tokens.total_tokens)
        .unwrap_or((input[1], output[0]));
    Usage::new(input, output).with_cached_input_tokens(cached)
}

/// Money in another currency is not told, rather than told wrong.
fn micro_dollars(cost: &acp::Cost) -> Option<u64> {
    const MOST: f64 = 1e15;
    let micros = (cost.amount * 1e6).round();
    let fits = cost.currency == "USD" && (0.0..=MOST).contains(&micros);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and within bounds"
    )]
    fits.then_some(micros as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_of_an_agent_that_says_nothing() {
        assert_eq!(usage(None, None), None);
        assert_eq!(usage(None, Some(&acp::Cost::new(1.0, "EUR"))), None);
        for amount in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(usage(None, Some(&acp::Cost::new(amount, "USD"))), None, "{amount}");
        }
    }

    #[test]
    fn cost_is_told_with_tokens_and_without() {
        let cost = acp::Cost::new(0.002, "USD");
        assert_eq!(usage(None, Some(&cost)), Some(Usage::default().with_cost_usd_micros(2000)));
        let tokens = acp::Usage::new(15, 10, 5);
        assert_eq!(usage(Some(&tokens), Some(&cost)), Some(Usage::new(10, 5).with_cost_usd_micros(2000)));
        assert_eq!(usage(Some(&tokens), None), Some(Usage::new(10, 5)));
    }

    #[test]
    fn the_total_says_what_is_counted_twice() {
        let cached = |total| acp::Usage::new(total, 100, 40).cached_read_tokens(30).cached_write_tokens(5);
        let told = |input| Some(Usage::new(input, 40).with_cached_input_tokens(30));
        assert_eq!(usage(Some(&cached(140)), None), told(100), "cached tokens are among the input");
        assert_eq!(usage(Some(&cached(175)), None), told(135), "cached tokens are beside the input");
        assert_eq!(usage(Some(&cached(1)), None), told(135), "the total is nonsense");
        let thinking = |total| acp::Usage::new(total, 100, 40).thought_tokens(7);
        assert_eq!(usage(Some(&thinking(140)), None), Some(Usage::new(100, 40)));
        assert_eq!(usage(Some(&thinking(147)), None), Some(Usage::new(100, 47)));
    }
}
