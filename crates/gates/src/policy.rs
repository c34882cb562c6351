//! What may be asked. A URL in a PhasedRollout must not turn the operator into a way to reach what only the node or the cloud can
//! reach. Addresses are checked after resolution, so that a name cannot get around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::endpoint::{Endpoint, Origin};
use crate::proxy::Proxies;

/// What whoever runs the operator lets it ask, and the way there. The default: every origin whose address is none of the node or
/// of the cloud, without a proxy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Which addresses.
    pub addresses: AddressPolicy,
    /// Which origins. Empty: all.
    pub origins: Vec<Origin>,
    /// Through which proxies.
    pub proxies: Proxies,
    /// Which Secrets are sent. The gate does not see their labels: whoever reads them does.
    pub secrets: SecretPolicy,
}

/// Which Secrets may be sent to Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretPolicy {
    /// Every one that a check names.
    #[default]
    Any,
    /// Those of them whose label says that they are for checks.
    Labelled,
}

impl From<AddressPolicy> for Policy {
    fn from(addresses: AddressPolicy) -> Self {
        Self { addresses, ..Self::default() }
    }
}

impl Policy {
    /// Why `endpoint` must not be asked, as far as it shows without resolving a name: the end of a sentence that begins with the
    /// name of the field.
    pub(crate) fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        if let Some(what) = address(endpoint.query_url()).and_then(|address| self.addresses.refuses(address)) {
            return Some(refused(what));
        }
        let origin = endpoint.origin();
        (!self.origins.is_empty() && !self.origins.contains(&origin)).then(|| {
            format!(
                "names {origin}, and this operator asks only the origins that its administrator allows (--allowed-origin): use \
                 one of them, or have the operator started with --allowed-origin {origin} as well"
            )
        })
    }
}

/// The end of a sentence about a host that is `what`.
pub(crate) fn refused(what: &str) -> String {
    format!("names a host that is {what}, which this operator does not ask: give the address of Prometheus")
}

/// The host of `url`, if it is an address. All forms of one are read as browsers do: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
pub(crate) fn address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
        Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
        Host::Domain(_) => None,
    }
}

/// Which addresses may be asked. The default refuses loopback too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// True: loopback addresses are allowed (for tests and for a Prometheus in the same pod).
    pub allow_loopback: bool,
}

impl AddressPolicy {
    /// Why `address` must not be asked: the kind of address, such as `a link-local address`. None if it may be.
    #[must_use]
    pub fn refuses(self, address: IpAddr) -> Option<&'static str> {
        match address {
            IpAddr::V4(v4) => self.refuses_v4(v4),
            IpAddr::V6(v6) => match embedded_v4(v6) {
                Some(v4) => self.refuses_v4(v4),
                None => self.refuses_v6(v6),
            },
        }
    }

    fn refuses_v4(self, address: Ipv4Addr) -> Option<&'static str> {
        match address.octets() {
            [0, ..] => Some("an unspecified address"),
            [127, ..] if !self.allow_loopback => Some("a loopback address"),
            [169, 254, ..] => Some("a link-local address"),
            // The metadata services of Alibaba Cloud, Oracle Cloud and Azure, which are not link-local.
            [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => {
                Some("an address of a cloud metadata service")
            }
            [224..=255, ..] => Some("a multicast or broadcast address"),
            _ => None,
        }
    }

    fn refuses_v6(self, address: Ipv6Addr) -> Option<&'static str> {
        // The services of the node on IPv6: of AWS a whole network, of Google, Oracle and Scaleway one address each.
        let is_metadata = matches!(
            address.segments(),
            [0xfd00, 0xec2, ..]
                | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
                | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
                | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]
        );
        if address.is_unspecified() {
            Some("an unspecified address")
        } else if address.is_loopback() {
            (!self.allow_loopback).then_some("a loopback address")
        } else if address.is_unicast_link_local() {
            Some("a link-local address")
        } else if is_metadata {
            Some("an address of a cloud metadata service")
        } else if address.is_multicast() {
            Some("a multicast or broadcast address")
        } else {
            None
        }
    }
}

/// The IPv4 address that an IPv6 one stands for: mapped (`::ffff:0:0/96`), compatible (`::/96`), translated
/// (`::ffff:0:0:0/96`), NAT64 (`64:ff9b::/96`, and `64:ff9b:1::/48` as far as its prefixes are 96 bits long), 6to4 (`2002::/16`).
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if high != 0 => Some(v4_of(high, low)),
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => Some(v4_of(high, low)),
        _ => None,
    }
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.0.0.1", None)]
    #[case("192.168.1.1", None)]
    #[case("100.64.0.1", None)]
    #[case("fd12::1", None)]
    #[case("2001:db8::1", None)]
    #[case("169.254.169.254", Some("a link-local address"))]
    #[case("::ffff:169.254.169.254", Some("a link-local address"))]
    #[case("64:ff9b::a9fe:a9fe", Some("a link-local address"))]
    #[case("::169.254.1.1", Some("a link-local address"))]
    #[case("fe80::1", Some("a link-local address"))]
    #[case("64:ff9b:1::a9fe:a9fe", Some("a link-local address"))]
    #[case("64:ff9b::7f00:1", Some("a loopback address"))]
    #[case("2002:a9fe:a9fe::1", Some("a link-local address"))]
    #[case("2002:7f00:1::", Some("a loopback address"))]
    #[case("::ffff:0:169.254.169.254", Some("a link-local address"))]
    #[case("64:ff9b::a00:1", None)]
    #[case("2002:a00:1::1", None)]
    #[case("fd00:ec2::254", Some("an address of a cloud metadata service"))]
    #[case("fd00:ec2::23", Some("an address of a cloud metadata service"))]
    #[case("fd20:ce::254", Some("an address of a cloud metadata service"))]
    #[case("fd00:c1::a9fe:a9fe", Some("an address of a cloud metadata service"))]
    #[case("fd00:42::42", Some("an address of a cloud metadata service"))]
    #[case("192.0.0.192", Some("an address of a cloud metadata service"))]
    #[case("168.63.129.16", Some("an address of a cloud metadata service"))]
    #[case("100.100.100.200", Some("an address of a cloud metadata service"))]
    #[case("0.0.0.0", Some("an unspecified address"))]
    #[case("::", Some("an unspecified address"))]
    #[case("::ffff:0.0.0.0", Some("an unspecified address"))]
    #[case("127.0.0.1", Some("a loopback address"))]
    #[case("127.8.9.1", Some("a loopback address"))]
    #[case("::1", Some("a loopback address"))]
    #[case("::ffff:127.0.0.1", Some("a loopback address"))]
    #[case("255.255.255.255", Some("a multicast or broadcast address"))]
    #[case("ff02::1", Some("a multicast or broadcast address"))]
    fn default_policy(#[case] address: IpAddr, #[case] want: Option<&str>) {
        assert_eq!(AddressPolicy::default().refuses(address), want);
    }

    /// Every way to write an address is one address, and names are no addresses.
    #[rstest]
    #[case("127.0.0.1", Some("a loopback address"))]
    #[case("127.1", Some("a loopback address"))]
    #[case("2130706433", Some("a loopback address"))]
    #[case("0x7f000001", Some("a loopback address"))]
    #[case("0x7f.0.0.1", Some("a loopback address"))]
    #[case("0177.0.0.1", Some("a loopback address"))]
    #[case("017700000001", Some("a loopback address"))]
    #[case("%31%32%37.0.0.1", Some("a loopback address"))]
    #[case("\u{ff11}27.0.0.1", Some("a loopback address"))]
    #[case("127.0.0.1.", Some("a loopback address"))]
    #[case("2852039166", Some("a link-local address"))]
    #[case("0xa9fea9fe", Some("a link-local address"))]
    #[case("0251.0376.0251.0376", Some("a link-local address"))]
    #[case("169.254.43518", Some("a link-local address"))]
    #[case("0", Some("an unspecified address"))]
    #[case("0x0", Some("an unspecified address"))]
    #[case("[::]", Some("an unspecified address"))]
    #[case("[::ffff:a9fe:a9fe]", Some("a link-local address"))]
    #[case("[0:0:0:0:0:ffff:7f00:1]", Some("a loopback address"))]
    #[case("[64:ff9b::169.254.169.254]", Some("a link-local address"))]
    #[case("[fd00:ec2::254]", Some("an address of a cloud metadata service"))]
    #[case("10.1", None)]
    #[case("prom", None)]
    #[case("127.0.0.1.example", None)]
    fn a_host_that_is_an_address(#[case] host: &str, #[case] want: Option<&str>) {
        for url in [format!("http://{host}:9090"), format!("https://{host}/x")] {
            let found = address(&url.parse().unwrap());
            assert_eq!(found.and_then(|address| AddressPolicy::default().refuses(address)), want, "{url}");
        }
    }

    #[rstest]
    #[case("prom:9090", true)]
    #[case("http://prom:9090/xx", true)]
    #[case("HTTP://PROM:9090", true)]
    #[case("https://prom.example.com", true)]
    #[case("https://prom.example.com:443/api/v1/query", true)]
    #[case("https://prom:9090", false)]
    #[case("prom", false)]
    #[case("prom.example.com", false)]
    #[case("https://prom.example.com.evil.org", false)]
    #[case("https://prom.example.com:8443", false)]
    #[case("10.0.0.1:9090", false)]
    fn only_origins_of_the_list(#[case] url: &str, #[case] allowed: bool) {
        let origins =
            ["http://prom:9090", "https://prom.example.com/"].map(|text| Origin::parse(text).unwrap()).to_vec();
        let policy = Policy { origins, ..Policy::default() };
        let refused = policy.refuses(&Endpoint::parse(url).unwrap());
        assert_eq!(refused.is_none(), allowed, "{refused:?}");
        assert!(refused.is_none_or(|why| why.contains("--allowed-origin http")));
    }

    #[rstest]
    #[case("127.0.0.1", true)]
    #[case("::1", true)]
    #[case("::ffff:127.0.0.1", true)]
    #[case("0.0.0.0", false)]
    #[case("169.254.169.254", false)]
    fn with_loopback(#[case] address: IpAddr, #[case] allowed: bool) {
        assert_eq!(AddressPolicy { allow_loopback: true }.refuses(address).is_none(), allowed);
    }
}
