//! Loopback ports for servers that have to be told theirs before they start. They lie below the range from which systems give ports to
//! outgoing connections, so one that is free stays free while a server is restarted. Between the look and the bind of the server another
//! process can still take one: who starts a server must try again with other ports when it cannot bind.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

use anyhow::bail;

use crate::pki::random_hex;

const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;

/// What this process has given out, so that two starts beside each other never get the same.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// `count` ports nobody listens on.
///
/// # Errors
/// When there are not that many.
pub fn free(count: usize) -> anyhow::Result<Vec<u16>> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = u16::from_str_radix(&random_hex(2)?, 16)? % COUNT;
    let mut ports = Vec::new();
    for step in 0..COUNT {
        let port = FIRST + (start + step) % COUNT;
        if ports.len() == count {
            break;
        }
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            ports.push(port);
        }
    }
    if ports.len() < count {
        // What was given out long ago may be free again.
        given.clear();
        bail!("there are no {count} free ports on loopback");
    }
    given.extend(&ports);
    Ok(ports)
}

/// Whether a server ended because somebody else had its port.
#[must_use]
pub fn was_taken(log: &str) -> bool {
    let log = log.to_lowercase();
    log.contains("address already in use") || log.contains("failed to create listener")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_free() {
        let mut ports = free(20).unwrap();
        ports.extend(free(20).unwrap());
        let listeners: Vec<_> =
            ports.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap()).collect();
        assert_eq!(listeners.len(), 40);
    }
}
