//! IP settings as calls of netsh. IP Helper's own functions set them until the next restart only.
//!
//! See [CreateUnicastIpAddressEntry](https://learn.microsoft.com/windows/win32/api/netioapi/nf-netioapi-createunicastipaddressentry),
//! Remarks.

use std::net::IpAddr;

use crate::machine::{IpSettings, Route};

/// The arguments of one call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Netsh(pub(crate) Vec<String>);

fn call(family: &str, words: &str, rest: impl IntoIterator<Item = String>) -> Netsh {
    let words = ["interface", family].into_iter().chain(words.split(' '));
    Netsh(words.map(Into::into).chain(rest).collect())
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "ipv4" } else { "ipv6" }
}

/// The calls that add `settings` to those that the interface has.
pub(crate) fn netsh(index: u32, settings: &IpSettings, before: &IpSettings) -> Vec<Netsh> {
    let mut calls = Vec::new();
    // The first address of a person's own ends DHCP, and would end other addresses.
    let mut is_static = before.addresses.iter().any(|address| address.ip.is_ipv4());
    for address in &settings.addresses {
        let bits = format!("address={address}");
        let (name, store) = (format!("name={index}"), "store=persistent".into());
        calls.push(match address.ip {
            IpAddr::V6(_) => {
                call("ipv6", "add address", [format!("interface={index}"), bits, store])
            }
            IpAddr::V4(_) if is_static => call("ipv4", "add address", [name, bits, store]),
            IpAddr::V4(_) => {
                call("ipv4", "set address", [name, "source=static".into(), bits, store])
            }
        });
        is_static |= address.ip.is_ipv4();
    }
    calls.extend(settings.routes.iter().map(|route| add_route(index, route)));
    for (family, metric) in [("ipv4", settings.metric_v4), ("ipv6", settings.metric_v6)] {
        let rest = metric.map(|metric| {
            [format!("interface={index}"), format!("metric={metric}"), "store=persistent".into()]
        });
        calls.extend(rest.map(|rest| call(family, "set interface", rest)));
    }
    let [v4, v6] = [true, false]
        .map(|is_v4| settings.dns.iter().filter(move |server| server.is_ipv4() == is_v4));
    for servers in [v4.collect::<Vec<_>>(), v6.collect()] {
        calls.extend(servers.into_iter().enumerate().map(|(n, server)| add_dns(index, n, *server)));
    }
    calls
}

fn add_route(index: u32, route: &Route) -> Netsh {
    let rest = [
        format!("prefix={}/{}", route.destination, route.prefix),
        format!("interface={index}"),
        format!("nexthop={}", route.next_hop),
        format!("metric={}", route.metric),
        "store=persistent".into(),
    ];
    call(family(route.next_hop), "add route", rest)
}

/// The first server ends the list that there was. Nobody asks whether one answers: it may be unreachable as yet.
fn add_dns(index: u32, n: usize, server: IpAddr) -> Netsh {
    let (name, address) = (format!("name={index}"), format!("address={server}"));
    let unasked = "validate=no".into();
    if n == 0 {
        let rest = [name, "source=static".into(), address, unasked];
        return call(family(server), "set dnsservers", rest);
    }
    call(family(server), "add dnsservers", [name, address, format!("index={}", n + 1), unasked])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Address;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Each setting is one call, for good. The first IPv4 address replaces DHCP, and no other address.
    #[test]
    fn each_setting_is_a_call() {
        let settings = IpSettings {
            addresses: ["192.0.2.7", "192.0.2.8", "2001:db8::7"]
                .map(|text| Address {
                    ip: ip(text),
                    prefix: 64 >> usize::from(!text.contains(':')),
                })
                .to_vec(),
            routes: vec![Route {
                destination: ip("0.0.0.0"),
                prefix: 0,
                next_hop: ip("192.0.2.1"),
                metric: 5,
            }],
            dns: ["192.0.2.53", "2001:db8::53", "192.0.2.54"].map(ip).to_vec(),
            suffix: None,
            metric_v4: Some(20),
            metric_v6: None,
        };
        let lines = |before: &IpSettings| {
            netsh(9, &settings, before).iter().map(|call| call.0.join(" ")).collect::<Vec<_>>()
        };
        let first = lines(&IpSettings::default());
        assert_eq!(
            first,
            [
                "interface ipv4 set address name=9 source=static address=192.0.2.7/32 store=persistent",
                "interface ipv4 add address name=9 address=192.0.2.8/32 store=persistent",
                "interface ipv6 add address interface=9 address=2001:db8::7/64 store=persistent",
                "interface ipv4 add route prefix=0.0.0.0/0 interface=9 nexthop=192.0.2.1 metric=5 \
                 store=persistent",
                "interface ipv4 set interface interface=9 metric=20 store=persistent",
                "interface ipv4 set dnsservers name=9 source=static address=192.0.2.53 validate=no",
                "interface ipv4 add dnsservers name=9 address=192.0.2.54 index=2 validate=no",
                "interface ipv6 set dnsservers name=9 source=static address=2001:db8::53 validate=no",
            ]
        );
        assert!(lines(&settings)[0].starts_with("interface ipv4 add address"));
    }
}
