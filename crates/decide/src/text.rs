//! Sentences that fit.

/// At most `bytes` of `text`, cut at a character boundary, with an ellipsis if something was cut.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let ellipsis = "…";
    let mut kept =
        text.get(..text.floor_char_boundary(bytes.saturating_sub(ellipsis.len()))).unwrap_or_default().to_owned();
    kept.push_str(ellipsis);
    kept
}

/// At most `bytes` of `text` without control characters, each of which would take six bytes in JSON and none of which a person can read.
pub(crate) fn plain(text: &str, bytes: usize) -> String {
    cut(&text.replace(char::is_control, " "), bytes)
}
