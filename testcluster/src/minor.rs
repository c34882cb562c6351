//! A minor version of Kubernetes. Holds no list of the known ones: what can be built is decided by the folders of `modules/`.

use std::{fmt, str::FromStr};

use anyhow::Context as _;

/// A minor version of Kubernetes, such as 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor {
    major: u16,
    minor: u16,
}

impl Minor {
    /// Kubernetes 1.36.
    pub const V1_36: Self = Self::new(1, 36);
    /// Kubernetes 1.37, the default.
    pub const V1_37: Self = Self::new(1, 37);

    /// The minor `major.minor`; it can be started when `modules/kube-<major>.<minor>` exists.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// The first number, always 1 so far.
    #[must_use]
    pub const fn major(self) -> u16 {
        self.major
    }

    /// The second number.
    #[must_use]
    pub const fn minor(self) -> u16 {
        self.minor
    }
}

impl Default for Minor {
    fn default() -> Self {
        Self::V1_37
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Minor {
    type Err = anyhow::Error;

    /// Reads `1.37` and `v1.37`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = || format!("{text:?} is not a minor version of Kubernetes such as 1.37");
        let (major, minor) = text.trim_start_matches('v').split_once('.').with_context(why)?;
        Ok(Self::new(major.parse().with_context(why)?, minor.parse().with_context(why)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_a_minor() {
        assert_eq!("1.36".parse::<Minor>().unwrap(), Minor::V1_36);
        assert_eq!("v1.37".parse::<Minor>().unwrap().to_string(), "1.37");
        let message = "1.37.2".parse::<Minor>().unwrap_err().to_string();
        assert!(message.contains("such as 1.37"), "{message}");
    }
}
