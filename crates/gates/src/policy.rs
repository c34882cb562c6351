//! Which addresses may be asked. A URL in a PhasedRollout must not turn the operator into a way to reach what only the node or
//! the cloud can reach (issue 4). The check is made on the addresses after resolution, so that a name cannot get around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What may be asked. The default refuses loopback too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// True: loopback addresses are allowed (for tests and for a Prometheus in the same pod).
    pub allow_loopback: bool,
}

impl AddressPolicy {
    /// Why `address` must not be asked: the kind of address, such as `a link-local address`. None if it may be.
    #[must_use]
    pub fn refuses(self, address: IpAddr) -> Option<&'static str> {
        match embedded_v4(address) {
            IpAddr::V4(v4) => self.refuses_v4(v4),
            IpAddr::V6(v6) => self.refuses_v6(v6),
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
        // The metadata service of AWS on IPv6.
        const AWS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
        if address.is_unspecified() {
            Some("an unspecified address")
        } else if address.is_loopback() {
            (!self.allow_loopback).then_some("a loopback address")
        } else if address.is_unicast_link_local() {
            Some("a link-local address")
        } else if address == AWS {
            Some("an address of a cloud metadata service")
        } else if address.is_multicast() {
            Some("a multicast or broadcast address")
        } else {
            None
        }
    }
}

/// The IPv4 address inside a mapped (`::ffff:0:0/96`), compatible (`::/96`) or NAT64 (`64:ff9b::/96`) one.
fn embedded_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if high != 0 => IpAddr::V4(v4_of(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0xffff, high, low] => IpAddr::V4(v4_of(high, low)),
        _ => address,
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
    #[case("fd00:ec2::254", Some("an address of a cloud metadata service"))]
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
