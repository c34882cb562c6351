//! A secret that must appear nowhere. It is the token or password of every scenario with credentials, and every scenario looks for
//! it at its end.

/// Part of every token and password in the tests.
pub const CANARY: &str = "canary-5f1d0c7ab3e94";

/// The base64 forms of it begin at any of three places; these are the parts that do not depend on what is around.
const ENCODED: [&str; 3] = ["Y2FuYXJ5LTVmMWQwYzdhYjNlO", "NhbmFyeS01ZjFkMGM3YWIzZT", "jYW5hcnktNWYxZDBjN2FiM2U5"];

/// Where the canary is found in `text`, with some of what is around it.
pub(crate) fn find(text: &str) -> Option<&str> {
    let at = std::iter::once(CANARY).chain(ENCODED).find_map(|form| text.find(form))?;
    let from = text.floor_char_boundary(at.saturating_sub(120));
    let to = text.ceil_char_boundary((at + 60).min(text.len()));
    text.get(from..to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_as_it_is_and_encoded() {
        assert!(find("token=canary-5f1d0c7ab3e94!").is_some());
        assert!(find("Basic Y2FuYXJ5LTVmMWQwYzdhYjNlOTQ=").is_some());
        assert!(find("Basic dTpjYW5hcnktNWYxZDBjN2FiM2U5NA==").is_some(), "u:canary…");
        assert!(find("Basic dXM6Y2FuYXJ5LTVmMWQwYzdhYjNlOTQ=").is_some(), "us:canary…");
        assert!(find("Basic dXNlOmNhbmFyeS01ZjFkMGM3YWIzZTk0").is_some(), "use:canary…");
        assert!(find("nothing").is_none());
    }
}
