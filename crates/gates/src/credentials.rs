//! Credentials as they lie in a Secret. Their content must never show: not in `Debug`, not in an error, not in a sentence, and
//! not in what Prometheus sends back.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use http::HeaderValue;

/// Texts shorter than this are not searched for in answers: hiding every `a` hides nothing and spoils the sentence.
const SHORTEST_HIDDEN: usize = 4;
const HIDDEN: &str = "[hidden]";

/// A Secret as it was read: its name and its decoded data.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData {
    /// Name of the Secret.
    pub name: String,
    /// Its data by key, decoded from base64.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretData").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The Secrets of one query; None where none is named, or where the named one does not exist.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The Secret of `secretRef`.
    pub credentials: Option<SecretData>,
    /// The Secret of `tls.caSecretRef`.
    pub ca: Option<SecretData>,
    /// The Secret of `tls.certSecretRef`.
    pub client_certificate: Option<SecretData>,
}

/// Why a Secret gives no credentials; a sentence that names the Secret and the key, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// None of the keys is there.
    #[error("Secret {secret} has no key token, and no keys username and password: add the token, or both of the pair")]
    Nothing {
        /// Name of the Secret.
        secret: String,
    },
    /// One key of a pair.
    #[error("Secret {secret} has the key {has} but no key {lacks}: add it, or use a token instead")]
    HalfPair {
        /// Name of the Secret.
        secret: String,
        /// The key that is there.
        has: &'static str,
        /// The key that is missing.
        lacks: &'static str,
    },
    /// A key is there and empty.
    #[error("key {key} of Secret {secret} is empty: fill it in or remove it")]
    Empty {
        /// Name of the Secret.
        secret: String,
        /// The key.
        key: &'static str,
    },
    /// A value cannot be sent.
    #[error("key {key} of Secret {secret} holds {what}, which cannot be sent as a credential: correct it")]
    Unusable {
        /// Name of the Secret.
        secret: String,
        /// The key.
        key: &'static str,
        /// What kind of thing is wrong.
        what: &'static str,
    },
}

/// Credentials ready to be sent.
#[derive(Clone)]
pub struct Credentials {
    header: HeaderValue,
    hidden: Vec<String>,
    ignored_pair: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Credentials {
    /// Reads `token` (bearer), or `username` and `password` (basic). The token wins. Line breaks at the end of a value are left
    /// out: `echo` puts them there.
    ///
    /// # Errors
    /// Neither is complete, or a value is empty or cannot be part of a header.
    pub fn read(secret: &SecretData) -> Result<Self, CredentialsError> {
        let pair = (value(secret, "username")?, value(secret, "password")?);
        match (value(secret, "token")?, pair) {
            (Found::Value(token), pair) => {
                let ignored_pair = pair != (Found::Missing, Found::Missing);
                Self::bearer(secret, &token).map(|bearer| Self { ignored_pair, ..bearer })
            }
            (_, (Found::Value(username), Found::Value(password))) => Self::basic(secret, &username, &password),
            (Found::Empty, (Found::Missing, Found::Missing)) => Err(empty(secret, "token")),
            (_, (Found::Empty, _)) => Err(empty(secret, "username")),
            (_, (_, Found::Empty)) => Err(empty(secret, "password")),
            (_, (Found::Value(_), Found::Missing)) => Err(half(secret, "username", "password")),
            (_, (Found::Missing, Found::Value(_))) => Err(half(secret, "password", "username")),
            (Found::Missing, (Found::Missing, Found::Missing)) => {
                Err(CredentialsError::Nothing { secret: secret.name.clone() })
            }
        }
    }

    fn bearer(secret: &SecretData, token: &str) -> Result<Self, CredentialsError> {
        if token.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("bearer ")) {
            return Err(unusable(secret, "token", "the word Bearer in front of the token (leave out Bearer)"));
        }
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(unusable(secret, "token", "a space, a control character or a character outside of ASCII"));
        }
        Self::with_header(secret, "token", &format!("Bearer {token}"), vec![token.to_owned()])
    }

    fn basic(secret: &SecretData, username: &str, password: &str) -> Result<Self, CredentialsError> {
        if username.contains(':') {
            return Err(unusable(secret, "username", "a colon"));
        }
        for (key, text) in [("username", username), ("password", password)] {
            if text.chars().any(char::is_control) {
                return Err(unusable(secret, key, "a control character"));
            }
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        Self::with_header(secret, "password", &format!("Basic {encoded}"), vec![encoded, password.to_owned()])
    }

    fn with_header(
        secret: &SecretData,
        key: &'static str,
        text: &str,
        hidden: Vec<String>,
    ) -> Result<Self, CredentialsError> {
        let mut header =
            HeaderValue::from_str(text).map_err(|_| unusable(secret, key, "a character that no header can hold"))?;
        header.set_sensitive(true);
        let hidden = hidden.into_iter().filter(|text| text.len() >= SHORTEST_HIDDEN).collect();
        Ok(Self { header, hidden, ignored_pair: false })
    }

    /// The value of the Authorization header, marked as sensitive.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// True if the Secret holds a username or password beside the token that is used.
    #[must_use]
    pub fn ignored_pair(&self) -> bool {
        self.ignored_pair
    }

    /// `text` with every occurrence of token, password and encoded pair replaced.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.hidden.iter().fold(text.to_owned(), |text, hidden| text.replace(hidden, HIDDEN))
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Found {
    Missing,
    Empty,
    Value(String),
}

fn value(secret: &SecretData, key: &'static str) -> Result<Found, CredentialsError> {
    let Some(bytes) = secret.data.get(key) else { return Ok(Found::Missing) };
    let text = std::str::from_utf8(bytes).map_err(|_| unusable(secret, key, "bytes that are no UTF-8 text"))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Ok(Found::Empty),
        text => Ok(Found::Value(text.to_owned())),
    }
}

fn empty(secret: &SecretData, key: &'static str) -> CredentialsError {
    CredentialsError::Empty { secret: secret.name.clone(), key }
}

fn half(secret: &SecretData, has: &'static str, lacks: &'static str) -> CredentialsError {
    CredentialsError::HalfPair { secret: secret.name.clone(), has, lacks }
}

fn unusable(secret: &SecretData, key: &'static str, what: &'static str) -> CredentialsError {
    CredentialsError::Unusable { secret: secret.name.clone(), key, what }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> SecretData {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        SecretData { name: "prom-secret".into(), data }
    }

    #[rstest]
    #[case::token(&[("token", "t0ken")], "Bearer t0ken", false)]
    #[case::line_break(&[("token", "t0ken\n")], "Bearer t0ken", false)]
    #[case::windows_line_break(&[("token", "t0ken\r\n")], "Bearer t0ken", false)]
    #[case::pair(&[("username", "Aladdin"), ("password", "open sesame\n")], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", false)]
    #[case::all_three(&[("token", "t0ken"), ("username", "u"), ("password", "p")], "Bearer t0ken", true)]
    #[case::token_and_half(&[("token", "t0ken"), ("username", "u")], "Bearer t0ken", true)]
    #[case::empty_token_and_pair(&[("token", ""), ("username", "Aladdin"), ("password", "open sesame")], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", false)]
    #[case::other_keys(&[("token", "t0ken"), ("ca.crt", "x")], "Bearer t0ken", false)]
    #[case::unicode_password(&[("username", "u"), ("password", "ä")], "Basic dTrDpA==", false)]
    fn reads(#[case] pairs: &[(&str, &str)], #[case] header: &str, #[case] ignored_pair: bool) {
        let found = Credentials::read(&secret(pairs)).unwrap();
        assert_eq!(found.header().as_bytes(), header.as_bytes());
        assert_eq!(found.ignored_pair(), ignored_pair);
        assert!(found.header().is_sensitive());
    }

    #[rstest]
    #[case::nothing(&[], "has no key token")]
    #[case::foreign_key(&[("Token", "x")], "has no key token")]
    #[case::only_user(&[("username", "u")], "has the key username but no key password")]
    #[case::only_password(&[("password", "p")], "has the key password but no key username")]
    #[case::empty_token(&[("token", "")], "key token of Secret prom-secret is empty")]
    #[case::only_a_line_break(&[("token", "\n")], "key token of Secret prom-secret is empty")]
    #[case::empty_password(&[("username", "u"), ("password", "")], "key password of Secret prom-secret is empty")]
    #[case::empty_username(&[("username", ""), ("password", "p")], "key username of Secret prom-secret is empty")]
    #[case::space(&[("token", "a ")], "key token of Secret prom-secret holds a space")]
    #[case::line_break_inside(&[("token", "a\nb")], "holds a space, a control character")]
    #[case::header_injection(&[("token", "a\r\nX-Evil: 1")], "cannot be sent")]
    #[case::colon(&[("username", "a:"), ("password", "p")], "key username of Secret prom-secret holds a colon")]
    #[case::control(&[("username", "a"), ("password", "p\0q")], "key password")]
    fn refuses(#[case] pairs: &[(&str, &str)], #[case] want: &str) {
        let found = Credentials::read(&secret(pairs)).unwrap_err().to_string();
        assert!(found.contains(want), "{found}");
    }

    #[test]
    fn refuses_bytes_that_are_no_text() {
        let data = [("token".to_owned(), vec![0xff, 0xfe])].into();
        let found = Credentials::read(&SecretData { name: "s".into(), data }).unwrap_err();
        assert!(found.to_string().contains("no UTF-8"), "{found}");
    }

    #[test]
    fn hides_what_comes_back() {
        let found = Credentials::read(&secret(&[("username", "Aladdin"), ("password", "open sesame")])).unwrap();
        let text = found.hide("no: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ== is Aladdin with open sesame");
        assert_eq!(text, "no: Basic [hidden] is Aladdin with [hidden]");
    }

    proptest! {
        /// The canary is long and random, so that it cannot be in a sentence by chance.
        #[test]
        fn never_shows(canary in "[a-z0-9:\n\u{0}é]{24,40}", key in prop_oneof![Just("token"), Just("username"), Just("password")], both in any::<bool>()) {
            let mut pairs = vec![(key, canary.as_str())];
            if both {
                pairs.push(("username", "u"));
            }
            let secret = secret(&pairs);
            let shown = format!("{secret:?} {:?}", Credentials::read(&secret));
            let sentence = Credentials::read(&secret).map_or_else(|e| e.to_string(), |_| String::new());
            let head: String = canary.chars().take(12).collect();
            prop_assert!(!shown.contains(&head) && !sentence.contains(&head));
        }
    }
}
