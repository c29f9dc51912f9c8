//! Requests that the kernel refuses, each in another way. In: requests that this crate never makes. Out: errors.
//! Invariant: the kernel answers each of them without a single route, which must not pass for "no routes".
//! Not here: dumps that go well; they need namespaces, and are in `netns-tests`.

use netlink_packet_route::route::{RouteAttribute, RouteScope};

use super::*;

fn refused(bytes: &[u8]) -> i32 {
    let dumper = Dumper::open("routes").unwrap();
    let found = dumper.dump(bytes, |kind, _| Ok(Some(kind)));
    match found {
        Err(DumpError::Refused { source, what }) => {
            assert_eq!(what, "routes");
            source.raw_os_error().unwrap()
        }
        Err(other) => panic!("{other}"),
        Ok(routes) => panic!("taken as {} routes", routes.len()),
    }
}

fn get_route(change: impl FnOnce(&mut RouteMessage)) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    change(&mut message);
    request(RouteNetlinkMessage::GetRoute(message))
}

#[test]
fn a_refused_dump_is_an_error_and_never_an_empty_list() {
    let (invalid, no_device) = (22, 19);
    let scope = get_route(|m| m.header.scope = RouteScope::Link);
    assert_eq!(refused(&scope), invalid, "a scope is no filter");
    let metric = get_route(|m| m.attributes.push(RouteAttribute::Priority(20)));
    assert_eq!(refused(&metric), invalid, "nor is a metric");
    let device = get_route(|m| m.attributes.push(RouteAttribute::Oif(0x7fff_fff0)));
    assert_eq!(refused(&device), no_device);
    // A type that no kernel knows is refused at once, with an error in place of the end of a dump.
    let mut unknown = get_route(|_| {});
    if let Some(kind) = unknown.get_mut(4) {
        *kind = 0xfe;
    }
    let code = refused(&unknown);
    assert!(code > 0, "{code}");
}
