//! The CEL rules of the CRD: what can be refused at admission without asking anybody else. A message names the field, what is wrong,
//! and the cure. The operator checks the same again and more: a rule must never let through what only the operator would refuse, if
//! it can be seen in the field alone. Regular expressions are RE2; every string that a rule reads has a maximum length, from which
//! the API server estimates the rule's cost.

use kube::core::{Message, Rule};

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

// The rules of an ExtendedStatefulSet.

/// A version is `<name>-v7`, with zones `<name>-<zone>-v7`, a StatefulSet makes pods only up to 52 characters, and numbers grow: there is room
/// for a million. An object of before this rule stays as it is while its zones do.
pub(crate) fn names_fit() -> Rule {
    let list = |object: &str, field: &str| format!("(has({object}.spec.{field}) ? {object}.spec.{field} : [])");
    let lengths =
        |field: &str| format!("(has(self.spec.{field}) ? self.spec.{field}.map(zone, size(zone) + 1) : []) + [0]");
    let in_place = "self.spec.updateStrategy.type == 'InPlace'";
    let longest = format!(
        "size(self.metadata.name) + ({in_place} ? 0 : 8) + ({} + {}).map(size, int(size)).max()",
        lengths("az"),
        lengths("zones")
    );
    let is_as_before = |field: &str| format!("{} == {}", list("oldSelf.value()", field), list("self", field));
    let is_old = format!("oldSelf.hasValue() && {} && {}", is_as_before("az"), is_as_before("zones"));
    rule(&format!("{longest} <= 52 || ({is_old})"), "").optional_old_self(true).message(told(
        "metadata.name, with the longest zone%s, has %d characters, %d more than the 52 that a StatefulSet can have: choose a \
         shorter name",
        &format!("{in_place} ? '' : ' and -v999999', {longest}, {longest} - 52"),
    ))
}

/// A message with numbers in it. By `format`: of text that is put together with + the API server expects any length, and refuses it.
fn told(text: &str, numbers: &str) -> Message {
    Message::Expression(format!("'{text}'.format([{numbers}])"))
}

/// Other objects of users may have one; a StatefulSet may not, and its name begins with this one.
pub(crate) fn no_dot_in_name() -> Rule {
    rule(
        "!self.metadata.name.contains('.')",
        "metadata.name has a dot, which no StatefulSet can have in its name: choose another name, with - in its place",
    )
}

/// The key of a label: a name, which may have a domain and / before it.
pub(crate) fn label_key(field: &str) -> Rule {
    rule(
        r"self.matches(r'^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",
        &format!("{field} can be no key of a label: write one such as topology.kubernetes.io/zone"),
    )
}

pub(crate) fn one_name_for_zones() -> Rule {
    rule(
        "!has(self.az) || !has(self.zones) || size(self.az) == 0 || size(self.zones) == 0 || self.az == self.zones",
        "spec.az and spec.zones are both set and differ: zones is another name of az; keep one of them",
    )
}

pub(crate) fn one_word_on_config_changes() -> Rule {
    rule(
        "!has(self.updateOnEnvChange) || !has(self.updateOnConfigChange) || self.updateOnEnvChange == self.updateOnConfigChange",
        "spec.updateOnEnvChange and spec.updateOnConfigChange are both set and differ: they are two names of one thing; keep one of them",
    )
}

pub(crate) fn zone_labels(field: &str) -> Rule {
    rule(
        "self.all(zone, zone.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
        &format!(
            "spec.{field} has a zone that can be no part of a name: write lower-case letters, digits and -, with a letter or digit at both ends"
        ),
    )
}

pub(crate) fn zones_once(field: &str) -> Rule {
    rule(
        "self.all(zone, self.exists_one(other, other == zone))",
        &format!("spec.{field} names a zone twice: name each once"),
    )
}

pub(crate) fn some_count_is_allowed() -> Rule {
    rule(
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        "spec.scaling.min is greater than spec.scaling.max: no number of replicas is allowed; correct one of them",
    )
}

pub(crate) fn some_odd_count_is_allowed() -> Rule {
    rule(
        "!self.oddOnly || !has(self.max) || self.max % 2 == 1 || (has(self.min) ? self.min < self.max : self.max > 0)",
        "spec.scaling.oddOnly is true and no odd number lies between spec.scaling.min and spec.scaling.max: widen the limits",
    )
}

/// With Reject a written number must be allowed as it is; CEL runs on `/scale` too (observed O30).
fn counted(condition: &str, told: Message) -> Rule {
    rule(
        &format!(
            "!has(self.template.spec.replicas) || !has(self.scaling) || self.scaling.policy == 'Clamp' || {condition}"
        ),
        "",
    )
    .message(told)
    .field_path(".template.spec.replicas")
}

pub(crate) fn count_is_not_too_low() -> Rule {
    counted(
        "!has(self.scaling.min) || self.template.spec.replicas >= self.scaling.min",
        told(
            "spec.template.spec.replicas is %d, and spec.scaling.min allows at least %d: choose a number within the limits, change \
             them, or set spec.scaling.policy to Clamp",
            "self.template.spec.replicas, self.scaling.min",
        ),
    )
}

pub(crate) fn count_is_not_too_high() -> Rule {
    counted(
        "!has(self.scaling.max) || self.template.spec.replicas <= self.scaling.max",
        told(
            "spec.template.spec.replicas is %d, and spec.scaling.max allows at most %d: choose a number within the limits, change \
             them, or set spec.scaling.policy to Clamp",
            "self.template.spec.replicas, self.scaling.max",
        ),
    )
}

pub(crate) fn count_is_odd() -> Rule {
    counted(
        "!self.scaling.oddOnly || self.template.spec.replicas % 2 == 1",
        told(
            "spec.template.spec.replicas is %d, and spec.scaling.oddOnly allows only odd numbers: choose an odd one, or set \
             spec.scaling.policy to Clamp",
            "self.template.spec.replicas",
        ),
    )
}

/// A rule about `spec.check` of a PhasedRollout, with the name that the check has here.
pub(crate) fn of_versions(mut rule: Rule) -> Rule {
    if let Some(Message::Message(text)) = &mut rule.message {
        *text = text.replace("spec.check", "spec.updateStrategy.check");
    }
    rule
}

pub(crate) fn type_stays() -> Rule {
    rule("self.type == oldSelf.type", "spec.updateStrategy.type cannot be changed: make another ExtendedStatefulSet")
}

pub(crate) fn two_services() -> Rule {
    rule(
        "!has(self.activeService) || !has(self.previewService) || self.activeService != self.previewService",
        "spec.updateStrategy.activeService and previewService name the same Service: name two, or remove one of them",
    )
}

pub(crate) fn no_services_in_place() -> Rule {
    rule(
        "self.type != 'InPlace' || !(has(self.activeService) || has(self.previewService) || self.scaleDownDelaySeconds > 0)",
        "spec.updateStrategy has activeService, previewService or scaleDownDelaySeconds, which are for type SideBySide: remove them (in \
         place there is one StatefulSet, and a Service that selects it follows by itself)",
    )
}

pub(crate) fn no_roll_settings_side_by_side() -> Rule {
    rule(
        "self.type != 'SideBySide' || !has(self.check) || \
         !(has(self.check.onFailure) || has(self.check.preflight) || has(self.check.final))",
        "spec.updateStrategy.check has onFailure, preflight or final, which are for type InPlace: remove them (side by side a version \
         whose check fails becomes stale)",
    )
}

pub(crate) fn some_query_in_check() -> Rule {
    rule(
        "has(self.query) || (has(self.queries) && size(self.queries) > 0)",
        "spec.updateStrategy.check has no query: give one in query or queries, or remove the check",
    )
}
