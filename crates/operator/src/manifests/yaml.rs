//! Objects as a stream of YAML documents that people can read and any Kubernetes client parses.

use serde_json::Value;

/// Why an object could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON.
    #[error("an object of the installation cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is no YAML.
    #[error("an object of the installation cannot be written as YAML: {0}")]
    Yaml(String),
}

/// The objects as YAML documents, each after a line `---`. A text of several lines is kept line by line.
///
/// # Errors
///
/// If an object cannot be written as YAML, which is a bug.
pub fn to_yaml(objects: &[Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        let options = serde_saphyr::ser_options! { folded_wrap_chars: 100_000 };
        let document =
            serde_saphyr::to_string_with_options(object, options).map_err(|error| Error::Yaml(error.to_string()))?;
        text.push_str("---\n");
        text.push_str(document.trim_end());
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_that_looks_like_something_else_stays_a_text() {
        let object = json!({ "a": "off", "b": "true", "c": "0", "d": "y", "e": "1e3", "f": "null", "g": "", "h": "- x: y", "i": "x\ny\n" });
        let text = to_yaml(std::slice::from_ref(&object)).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, object, "{text}");
    }
}
