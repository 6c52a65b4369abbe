use std::fmt;

/// The version of an agent, without what stands behind its three numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[expect(clippy::exhaustive_structs, reason = "a version has three numbers")]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// Makes a version.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `1.2.3`, perhaps followed by `-` or `+` and something.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| {
            let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| number.parse().ok()).flatten()
        });
        let version = Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers_and_perhaps_a_tail() {
        for text in ["", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.x", "1..3", "+1.2.3", "1.2.99999999999"] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
        assert_eq!(Version::parse("2.1.197"), Some(Version::new(2, 1, 197)));
        assert_eq!(Version::parse("0.171.0-alpha.2"), Some(Version::new(0, 171, 0)));
        assert!(Version::new(2, 1, 197) > Version::new(2, 1, 20));
    }
}
