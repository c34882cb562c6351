//! The queries of a check with what they inherit, and the name of each field for messages. It must not judge anything.

use sts_plus_api::{Check, Query};

/// One query of a check, with the URL and Secret that are in force for it and the field names for messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Question<'a> {
    /// The query.
    pub query: &'a Query,
    /// Path of the query, such as `spec.check.query` or `spec.check.queries[1]`.
    pub field: String,
    /// The URL in force, as written, if there is one.
    pub url: Option<&'a str>,
    /// Path of the field that gives the URL.
    pub url_field: String,
    /// Name of the Secret in force, if there is one.
    pub secret_ref: Option<&'a str>,
    /// Path of the field that names the Secret.
    pub secret_field: String,
}

/// The queries of `check` in their order: the shorthand first, then the list.
#[must_use]
pub fn questions(check: &Check) -> Vec<Question<'_>> {
    let shorthand = check.query.iter().map(|query| ("spec.check.query".to_owned(), query));
    let list = check.queries.iter().enumerate().map(|(i, query)| (format!("spec.check.queries[{i}]"), query));
    shorthand.chain(list).map(|(field, query)| question(check, field, query)).collect()
}

fn question<'a>(check: &'a Check, field: String, query: &'a Query) -> Question<'a> {
    let path_of = |own: bool, shared: bool, name: &str| {
        if !own && shared { format!("spec.check.{name}") } else { format!("{field}.{name}") }
    };
    Question {
        query,
        url: check.url_of(query),
        url_field: path_of(query.url.is_some(), check.url.is_some(), "url"),
        secret_ref: check.secret_of(query),
        secret_field: path_of(query.secret_ref.is_some(), check.secret_ref.is_some(), "secretRef"),
        field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field_that_gives_the_url() {
        let own = Query { url: Some("a".into()), ..Query::default() };
        let check = Check {
            queries: vec![own, Query::default()],
            url: Some("b".into()),
            secret_ref: Some("s".into()),
            ..Check::default()
        };
        let found = questions(&check);
        let urls: Vec<_> = found.iter().map(|q| (q.url, q.url_field.as_str())).collect();
        assert_eq!(urls, [(Some("a"), "spec.check.queries[0].url"), (Some("b"), "spec.check.url")]);
        assert_eq!(found[0].secret_field, "spec.check.secretRef");
        assert_eq!(found[1].field, "spec.check.queries[1]");
    }
}
