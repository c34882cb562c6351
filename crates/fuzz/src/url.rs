//! The URL of a Prometheus and the policy for addresses. An input of 4 or 16 bytes is an address, any other a URL.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sts_plus_gates::{AddressPolicy, Endpoint};

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        v4(octets.into());
    }
    if let Ok(octets) = <[u8; 16]>::try_from(bytes) {
        v6(octets.into());
    }
    let text = String::from_utf8_lossy(bytes);
    match Endpoint::parse(&text) {
        Ok(endpoint) => good(&text, &endpoint),
        Err(e) => assert!(e.to_string().len() < 256, "a sentence does not repeat the URL: {e}"),
    }
}

fn good(written: &str, endpoint: &Endpoint) {
    let url = endpoint.query_url();
    assert!(matches!(url.scheme(), "http" | "https"), "{url}");
    assert!(url.username().is_empty() && url.password().is_none(), "credentials are kept: {url}");
    assert!(url.query().is_none() && url.fragment().is_none(), "{url}");
    assert!(url.path().ends_with("/api/v1/query"), "{url}");
    assert!(url.port() != Some(0), "{url}");
    let shown = endpoint.to_string();
    assert!(!shown.contains(|c: char| c.is_whitespace() || c.is_control()), "{shown:?}");
    let again = Endpoint::parse(&shown).unwrap_or_else(|e| panic!("{shown:?}, as it is shown, is refused: {e}"));
    assert_eq!(again.query_url(), url, "{shown:?}, as it is shown, is another one");

    let host = url.host_str().unwrap_or_default();
    if let Some(read) = host_as_read(written) {
        assert_eq!(host, read, "another host than a person reads in {written:?}");
    }
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if let Ok(address) = address {
        let refused = AddressPolicy::default().refuses(address);
        assert_eq!(refused.is_some(), must_be_refused(address), "{host} of {written:?}: {refused:?}");
    }
}

/// The host, if it is a plain name in which no number hides.
fn host_as_read(written: &str) -> Option<String> {
    let written = written.trim().to_ascii_lowercase();
    let rest = written.split_once("://").map_or(written.as_str(), |(_, rest)| rest);
    let host = rest.split(['/', ':']).next()?;
    let is_plain = |label: &str| {
        !label.is_empty()
            && !label.starts_with("xn--")
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && label.starts_with(|c: char| c.is_ascii_lowercase())
    };
    host.split('.').all(is_plain).then(|| host.to_owned())
}

fn v4(address: Ipv4Addr) {
    for policy in [AddressPolicy::default(), AddressPolicy { allow_loopback: true }] {
        let refused = policy.refuses(IpAddr::V4(address));
        let [a, b, c, d] = address.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let mapped = policy.refuses(IpAddr::V6(address.to_ipv6_mapped()));
        let nat64 = policy.refuses(IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)));
        assert_eq!((mapped, nat64), (refused, refused), "{address} hides in another form");
    }
    let refused = AddressPolicy::default().refuses(IpAddr::V4(address));
    assert_eq!(refused.is_some(), must_be_refused(IpAddr::V4(address)), "{address}: {refused:?}");
}

fn v6(address: Ipv6Addr) {
    let refused = AddressPolicy::default().refuses(IpAddr::V6(address));
    assert!(refused.is_some() || !must_be_refused(IpAddr::V6(address)), "{address}");
}

/// What the standard library says of an address, and the metadata services that are none of that.
fn must_be_refused(address: IpAddr) -> bool {
    let metadata = ["100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"];
    let is_metadata = metadata.iter().any(|known| known.parse() == Ok(address));
    match address {
        IpAddr::V4(v4) => {
            let high = v4.octets()[0] >= 224;
            is_metadata || v4.octets()[0] == 0 || v4.is_loopback() || v4.is_link_local() || high
        }
        IpAddr::V6(v6) => {
            let embedded = match v6.segments() {
                [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => true,
                [0, 0, 0, 0, 0, 0, high, _] => high != 0,
                _ => false,
            };
            let [.., a, b, c, d] = v6.octets();
            is_metadata
                || v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || embedded && must_be_refused(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
    }
}
