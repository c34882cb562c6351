//! What can go wrong in a run, and what follows from it: [`Error::class`] decides when the object is looked at again. No error
//! holds an object or the content of a Secret.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use kube::core::Status;

/// The reason that the client gives an answer that is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";

/// What went wrong in one run for one object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server, or the way to it, gave an error.
    #[error("{call}: {}", told(.source))]
    Api {
        /// What was asked, in words.
        call: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The API server gave no answer in time. If it was a write, it may have happened.
    #[error("{call}: no answer within {} s", .after.as_secs())]
    Deadline {
        /// What was asked, in words.
        call: String,
        /// How long was waited.
        after: Duration,
    },
    /// The API server gave an answer that is older than what it had said before.
    #[error("{what} was read as it was before: the answer is older than what is known already")]
    Outdated {
        /// What was read.
        what: String,
    },
    /// Our own write of a partition was changed on its way.
    #[error(
        "StatefulSet {set}: partition {} was written and {} was kept: the admission policies take this operator for somebody \
         else; install them with its user name (`make install IDENTITY=<user name>`, or `sts-plus manifests --identity <user name>`)",
        shown(*.asked),
        shown(*.kept)
    )]
    NotGranted {
        /// Name of the set.
        set: String,
        /// The partition that was asked for; missing: none.
        asked: Option<i32>,
        /// The partition that the set has.
        kept: Option<i32>,
    },
    /// Something that was read cannot be used.
    #[error("{what}: {problem}")]
    Unusable {
        /// What it is.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The code panicked. It is a bug; other objects go on.
    #[error("bug: a panic while this object was looked at: {0}")]
    Panic(String),
}

/// The kinds of error. They decide retry and what people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It may go away by itself: retried with growing pauses.
    Transient,
    /// Somebody else wrote in between: looked at again at once.
    Conflict,
    /// Nothing gets better without a change of an object.
    Invalid,
    /// The operator is not allowed to do it.
    Forbidden,
    /// Ours.
    Bug,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Error {
    /// An error of the API server for `call`.
    pub fn api(call: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { call: call.into(), source: Box::new(source) }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => class_of(source),
            Self::Deadline { .. } => Class::Transient,
            Self::Outdated { .. } => Class::Conflict,
            Self::NotGranted { .. } => Class::Forbidden,
            Self::Unusable { .. } => Class::Invalid,
            Self::Panic(_) => Class::Bug,
        }
    }

    /// True if the object of the call does not exist, or its kind is not served.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_not_found(source))
    }

    /// True if an object of that name exists already.
    #[must_use]
    pub fn is_already_there(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        matches!(&**source, kube::Error::Api(status) if status.reason == "AlreadyExists")
    }
}

/// True if what was asked for does not exist, or its kind is not served: then the answer is plain text, and kube's own
/// `is_not_found` does not take it for one.
#[must_use]
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn shown(partition: Option<i32>) -> String {
    partition.map_or_else(|| "none".to_owned(), |partition| partition.to_string())
}

/// What kind of error the client's error is.
#[must_use]
pub fn class_of(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => class_of_status(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Class::Invalid,
        kube::Error::BuildRequest(_) => Class::Bug,
        _ => Class::Transient,
    }
}

fn class_of_status(status: &Status) -> Class {
    match status.code {
        // What was read a moment ago is gone or has moved: look again.
        404 | 409 => Class::Conflict,
        422 if is_failed_patch(status) => Class::Conflict,
        400 | 405 | 406 | 413 | 415 | 422 => Class::Invalid,
        401 | 403 => Class::Forbidden,
        _ => Class::Transient,
    }
}

/// A JSON patch that could not be carried out (a `test` that failed, a path that is gone) gets 422 with a text that names no field;
/// a refused object gets 422 with causes that do (observed O12).
fn is_failed_patch(status: &Status) -> bool {
    !status.details.iter().flat_map(|details| &details.causes).any(|cause| !cause.field.is_empty())
}

/// The error in one line, without the debug form that the client's own text repeats.
#[must_use]
pub fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => told_status(status),
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(inner) = source {
                let inner_text = inner.to_string();
                // Most errors of the client tell their source already.
                if !text.contains(&inner_text) {
                    text = format!("{text}: {inner_text}");
                }
                source = inner.source();
            }
            cut(&text, 512).to_owned()
        }
    }
}

/// The answer of the API server, and what kind of answer it is. Not every one has a reason: a field that it does not know it tells with
/// status 500 alone, and what stands before it may answer in plain text.
#[must_use]
pub fn told_status(status: &Status) -> String {
    let reason = Some(status.reason.as_str()).filter(|reason| !matches!(*reason, "" | NO_STATUS));
    let usual = || StatusCode::from_u16(status.code).ok()?.canonical_reason();
    let code = (status.code != 0).then(|| status.code.to_string());
    let words: Vec<_> = code.as_deref().into_iter().chain(reason.or_else(usual)).collect();
    let (message, kind) = (cut(&status.message, 512), words.join(" "));
    match (message.is_empty(), kind.is_empty()) {
        (false, false) => format!("{message} ({kind})"),
        (false, true) => message.to_owned(),
        (true, _) => kind,
    }
}

/// At most `bytes` bytes of `text`, cut at a character.
#[must_use]
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn refused(code: u16, reason: &str, field: Option<&str>) -> Error {
        let details = field.map(|field| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![StatusCause { reason: String::new(), message: String::new(), field: field.to_owned() }],
            retry_after_seconds: 0,
        });
        let mut status = Status::failure("no", reason).with_code(code);
        status.details = details;
        Error::api("patching StatefulSet web", kube::Error::Api(status.boxed()))
    }

    #[test]
    fn a_failed_test_of_a_json_patch_is_a_conflict_and_a_refused_field_is_not() {
        assert_eq!(refused(422, "Invalid", None).class(), Class::Conflict);
        assert_eq!(refused(422, "Invalid", Some("spec.replicas")).class(), Class::Invalid);
    }

    #[test]
    fn classes_by_status_code() {
        let classes = [
            (409, Class::Conflict),
            (404, Class::Conflict),
            (403, Class::Forbidden),
            (401, Class::Forbidden),
            (400, Class::Invalid),
            (429, Class::Transient),
            (500, Class::Transient),
            (503, Class::Transient),
        ];
        for (code, class) in classes {
            assert_eq!(refused(code, "", None).class(), class, "{code}");
        }
    }

    #[test]
    fn what_is_not_served_is_not_found_either() {
        assert!(refused(404, "NotFound", None).is_not_found());
        assert!(refused(404, "Failed to parse error data", None).is_not_found(), "as kube reads a plain text");
        assert!(!refused(403, "Forbidden", None).is_not_found());
    }

    #[test]
    fn the_text_names_the_call_and_the_answer_once() {
        assert_eq!(refused(409, "Conflict", None).to_string(), "patching StatefulSet web: no (409 Conflict)");
    }

    #[test]
    fn an_answer_without_a_reason_has_the_usual_name_of_its_code() {
        let words = |code, reason: &str| {
            let error = refused(code, reason, None).to_string();
            error.strip_prefix("patching StatefulSet web: ").unwrap().to_owned()
        };
        assert_eq!(words(500, ""), "no (500 Internal Server Error)");
        assert_eq!(words(502, "Failed to parse error data"), "no (502 Bad Gateway)", "as kube reads a plain text");
        assert_eq!(words(599, ""), "no (599)");
        assert_eq!(words(0, ""), "no");
        assert_eq!(words(0, "Expired"), "no (Expired)");
        assert_eq!(told_status(&Status::failure("", "").with_code(500)), "500 Internal Server Error");
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("aéb", 3), "aé");
        assert_eq!(cut("ab", 9), "ab");
    }
}
