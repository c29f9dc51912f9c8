//! Test vectors that OVN-Kubernetes stores.

use super::*;

#[test]
fn row_names_are_those_that_ovn_kubernetes_stores() {
    for (id, name) in [
        (
            "default-network-controller:Cluster:no-overlay-snat-exemption:v4:default",
            "a2173161212401639980",
        ),
        (
            "default-network-controller:Cluster:no-overlay-snat-exemption:v6:default",
            "a1600907987790248794",
        ),
        (
            "cluster_udn_blue-network-controller:Cluster:no-overlay-snat-exemption:v4:cluster_udn_blue",
            "a13515812601267266428",
        ),
        (
            "default-network-controller:ClusterNodeIPs:node-ips:v4",
            "a1042611113178530741",
        ),
        (
            "default-network-controller:AdvertisedNetwork:advertised-network-subnets:v4",
            "a10109792604843350142",
        ),
        (
            "default-network-controller:AdvertisedNetwork:advertised-network-subnets",
            "a13312563267853114862",
        ),
    ] {
        assert_eq!(row_name(id), name, "{id}");
    }
}

#[test]
fn short_hashes_are_legal_in_object_names_and_differ() {
    let (a, b) = (short("ra/src/n1"), short("ra/src/n2"));
    assert_ne!(a, b);
    assert_eq!(a.len(), 10);
    assert!(
        a.bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    );
    assert_eq!(a, short("ra/src/n1"));
}
