//! What gives way, and where.

use model::address::Prefix;
use model::gateway::BgpDefault;
use plan_node::learn::*;
use std::collections::BTreeSet;
use testkit::mk_view;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

#[test]
fn what_gives_way_is_planned_where_no_imported_route_has_its_prefix() {
    let view = mk_view(1);
    let router = view.get().gateway_router();
    let (subnet, everything) = (prefix("10.128.0.0/16"), prefix("0.0.0.0/0"));
    for (default, giving_way) in [
        (BgpDefault::Ignore, vec![subnet]),
        (BgpDefault::Replace, vec![everything, subnet]),
    ] {
        let fallbacks = fallbacks(view.get(), default);
        let found: Vec<Prefix> = fallbacks.keys().copied().collect();
        assert_eq!(found, giving_way);
        let all = plan_node::north::plan(view.get());
        for imported in [vec![], vec![subnet], vec![everything, subnet]] {
            let imported: BTreeSet<Prefix> = imported.into_iter().collect();
            let rows = without_fallbacks(all.clone(), &router, &fallbacks, &imported);
            let mut expected = topology_prefixes(&all, &router);
            expected.retain(|p| !(imported.contains(p) && giving_way.contains(p)));
            assert_eq!(topology_prefixes(&rows, &router), expected);
            let gone = all.len() - rows.len();
            assert_eq!(
                gone,
                imported.iter().filter(|p| giving_way.contains(p)).count()
            );
        }
    }
}

#[test]
fn what_the_topology_holds_is_taken() {
    let view = mk_view(1);
    let taken = topology_prefixes(
        &plan_node::north::plan(view.get()),
        &view.get().gateway_router(),
    );
    let expected = ["0.0.0.0/0", "10.128.0.0/16", "10.128.1.0/24"].map(prefix);
    assert_eq!(taken, BTreeSet::from(expected));
}
