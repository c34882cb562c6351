//! The CEL rules of the CRD: what can be refused at admission without asking anybody else. A message names the field, what is wrong,
//! and the cure. The operator checks the same again and more: a rule must never let through what only the operator would refuse, if
//! it can be seen in the field alone. Regular expressions are RE2; every string that a rule reads has a maximum length, from which
//! the API server estimates the rule's cost.

use kube::core::Rule;

fn rule(rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(message)
}

pub(crate) fn some_query() -> Rule {
    rule(
        "self.skipCheck || (has(self.standardRollingUpdate) && self.standardRollingUpdate) || has(self.check.query) || \
         (has(self.check.queries) && size(self.check.queries) > 0)",
        "spec.check.query is missing: give a query in spec.check.query or spec.check.queries, or set spec.skipCheck to true to roll \
         without checks",
    )
}

pub(crate) fn one_switch() -> Rule {
    rule(
        "!self.skipCheck || !has(self.standardRollingUpdate) || self.standardRollingUpdate",
        "spec.skipCheck is true and spec.standardRollingUpdate, its other name, is false: remove spec.standardRollingUpdate",
    )
}

pub(crate) fn each_once() -> Rule {
    rule(
        "self.all(index, self.exists_one(other, other == index))",
        "spec.pauseBefore names an index twice: name each once",
    )
}

pub(crate) fn query_or_queries() -> Rule {
    rule(
        "!(has(self.query) && has(self.queries) && size(self.queries) > 0)",
        "spec.check.query and spec.check.queries are both set: keep one of them (query is a shorthand for a list of one)",
    )
}

pub(crate) fn tries_for_the_passes() -> Rule {
    rule(
        "self.maxTries >= self.successThreshold",
        "spec.check.maxTries must be at least spec.check.successThreshold: that many consecutive passes do not fit into fewer tries",
    )
}

pub(crate) fn every_query_named() -> Rule {
    rule(
        "!has(self.queries) || self.queries.all(q, has(q.name))",
        "spec.check.queries[].name is missing: give every query of the list a name of its own",
    )
}

pub(crate) fn no_name_twice() -> Rule {
    rule(
        "!has(self.queries) || self.queries.all(q, !has(q.name) || self.queries.exists_one(p, has(p.name) && p.name == q.name))",
        "spec.check.queries[].name is used twice: give every query a name of its own",
    )
}

pub(crate) fn some_url() -> Rule {
    rule(
        "has(self.url) || ((!has(self.query) || has(self.query.url)) && (!has(self.queries) || self.queries.all(q, has(q.url))))",
        "spec.check.query.url is missing: give the Prometheus URL there, for each of spec.check.queries, or once in spec.check.url",
    )
}

pub(crate) fn shared_url_for_tls() -> Rule {
    rule(
        "!has(self.url) || self.url.trim().lowerAscii().startsWith('https://') || \
         ((!has(self.query) || !has(self.query.tls) || has(self.query.url)) && \
         (!has(self.queries) || self.queries.all(q, !has(q.tls) || has(q.url))))",
        "spec.check.url is no https URL, and a query that uses it has tls: write https:// there or remove tls",
    )
}

pub(crate) fn own_url_for_tls() -> Rule {
    rule(
        "!has(self.tls) || !has(self.url) || self.url.trim().lowerAscii().startsWith('https://')",
        "tls is set, and url is no https URL: write https:// there or remove tls",
    )
}

pub(crate) fn missing_metric_needs_no_data() -> Rule {
    rule(
        "self.successWhen != 'Data' || self.onMissingMetric != 'Hold'",
        "onMissingMetric Hold needs successWhen NoData: with successWhen Data a missing metric never passes anyway; remove one of the two",
    )
}

pub(crate) fn authority_or_no_verification() -> Rule {
    rule(
        "!self.insecureSkipVerify || !has(self.caSecretRef)",
        "tls.insecureSkipVerify is true, and caSecretRef has no meaning then: remove one of the two",
    )
}

/// The name of an object of Kubernetes (RFC 1123 subdomain).
pub(crate) fn object_name(field: &str, kind: &str) -> Rule {
    rule(
        r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        &format!(
            "{field} can be no name of a {kind}: such names have lower-case letters, digits, - and ., and a letter or digit at both \
             ends; correct it"
        ),
    )
}

pub(crate) fn host_name() -> Rule {
    let label = "[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?";
    rule(
        &format!("self.matches(r'^({label}([.]{label})*[.]?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)$')"),
        "serverName is no valid host name: write a name or an address alone, such as prometheus.example.com, without scheme, port and path",
    )
}

pub(crate) fn one_line() -> Rule {
    rule(
        r"self.trim() != '' && !self.matches(r'[\x00-\x1f\x7f]')",
        "name is blank, or has a line break or another control character in it: write one line",
    )
}

pub(crate) fn not_blank() -> Rule {
    rule("self.trim() != ''", "expr is empty: write an expression such as up == 0")
}

// The rules of every field `url`. They stand at the object around it: of a rule at the field itself the API server shows the value
// too, which may hold a password. White space at the ends is left out by the operator.

/// `condition` is about `self.url`.
fn url_rule(condition: &str, message: &str) -> Rule {
    rule(&format!("!has(self.url) || {condition}"), message).field_path(".url")
}

/// The URL must not match.
fn never(pattern: &str, message: &str) -> Rule {
    url_rule(&format!("!self.url.trim().matches(r'{pattern}')"), message)
}

pub(crate) fn url_characters() -> Rule {
    never(r"[\s\x00-\x1f\x7f\\]", "url contains a space, a control character or a backslash: leave it out")
}

pub(crate) fn url_scheme() -> Rule {
    url_rule(
        "(!self.url.contains('://') || self.url.trim().matches(r'^[hH][tT][tT][pP][sS]?://')) && \
         !self.url.trim().matches(r'^[hH][tT][tT][pP][sS]?:/([^/]|$)')",
        "url has a scheme other than http and https: write http://host:port/path, https://host:port/path, or host:port/path",
    )
}

pub(crate) fn url_credentials() -> Rule {
    never(
        "^([^/?#]*://)?[^/?#]*@",
        "url contains credentials (user@ or user:password@): put them into a Secret and name it in secretRef",
    )
}

pub(crate) fn url_host() -> Rule {
    never("^([^/?#]*://)?([:/?#]|$)", "url has no host: write host:port/path, for example prometheus:9090")
}

pub(crate) fn url_host_characters() -> Rule {
    never(
        r"^([^/?#]*://)?[-A-Za-z0-9._]*[^-A-Za-z0-9._:/?#@\[\]\\\s\x00-\x1f\x7f]",
        "url has a host with characters other than letters, digits, -, . and _: correct it",
    )
}

pub(crate) fn url_port() -> Rule {
    let port = "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
    url_rule(
        &format!(
            r"self.url.trim().matches(r'^([^/?#]*://)?(([^/?#]*@)|(\[[0-9a-fA-F:.]*\]|[^\[\]:/?#]*)(:{port})?([/?#]|$))')"
        ),
        "url has a port that is no number from 1 to 65535, or an IPv6 address without brackets: write host:9090 or [::1]:9090",
    )
}

pub(crate) fn url_query_string() -> Rule {
    never("[?]", "url has a query string: leave out the ? and what follows; the expression goes into expr")
}

pub(crate) fn url_fragment() -> Rule {
    never("#", "url has a fragment: leave out the # and what follows")
}

/// `010.0.0.1`, `0x7f.1` and `2130706433` are addresses too, and none that a person would read there.
pub(crate) fn url_ipv4() -> Rule {
    let number = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    url_rule(
        &format!(
            "(!self.url.trim().matches(r'^([^/?#]*://)?([^/?#:@]*[.])?([0-9]+|0[xX][0-9a-fA-F]*)[.]?([:/?#]|$)') || \
             self.url.trim().matches(r'^([^/?#]*://)?{number}([.]{number}){{3}}([:/?#]|$)'))"
        ),
        "url has an IPv4 address in an unusual form: write four numbers from 0 to 255, without leading zeros",
    )
}
