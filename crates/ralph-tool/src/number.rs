//! Numbers as the contract reads them: JSON numbers are doubles, and integers go up to 2^53 - 1.

use serde_json::Value;

/// The greatest integer that a double holds without gaps below it.
pub(crate) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Returns the number in `value` if it is an integer from 1 to 2^53 - 1, however it is spelled: `4`, `4.0`, `4e0`.
pub(crate) fn positive_safe_integer(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    let integer = match number.as_u64() {
        Some(integer) => integer,
        None => integral(number.as_f64()?)?,
    };
    (1..=MAX_SAFE_INTEGER).contains(&integer).then_some(integer)
}

fn integral(number: f64) -> Option<u64> {
    // Every double in this range that has no fraction is one of the integers.
    let exact = number.fract() == 0.0 && (1.0..=MAX_SAFE_INTEGER as f64).contains(&number);
    exact.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(positive_safe_integer(&value), expected, "{text}");
    }

    #[test]
    fn numbers_are_compared_by_value_and_not_by_spelling() {
        for spelling in ["4", "4.0", "4e0", "0.4e1", "40E-1", "4.00000000000000000000001"] {
            check(spelling, Some(4));
        }
        check("9007199254740991", Some(MAX_SAFE_INTEGER));
        check("9007199254740991.4", Some(MAX_SAFE_INTEGER));
    }

    #[test]
    fn whatever_is_no_positive_safe_integer_is_refused() {
        let numbers =
            ["0", "-0", "-1", "1.5", "0.999", "9007199254740992", "18446744073709551616", "1e300", "-1e300"];
        for text in numbers.into_iter().chain(["null", "true", "\"4\"", "[4]", "{}"]) {
            check(text, None);
        }
    }
}
