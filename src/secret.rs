use std::fmt;

/// A text that nobody may see: it cannot be displayed or serialised, and `Debug` shows `***`.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the secret hidden: vendors like to quote keys that they refuse.
    pub(crate) fn hidden_in(&self, text: String) -> String {
        if self.0.is_empty() || !text.contains(&*self.0) {
            return text;
        }
        text.replace(&*self.0, "***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        let secret = Secret::new("sk-1234");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.hidden_in("key sk-1234 is wrong".into()), "key *** is wrong");
        assert_eq!(Secret::new("").hidden_in("plain".into()), "plain");
    }
}
