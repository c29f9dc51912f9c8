//! Identities of decoded rows.

use super::*;

fn mk(columns: &[(&'static str, Value)]) -> Columns {
    columns.iter().cloned().collect()
}

fn text_of(value: &str) -> Value {
    Value::Text(value.to_owned())
}

#[test]
fn a_named_row_is_its_name() {
    let row = mk(&[("name", text_of("n1")), ("mac", text_of("x"))]);
    for table in [
        Table::AddressSet,
        Table::Router,
        Table::Switch,
        Table::RouterPort,
        Table::SwitchPort,
    ] {
        assert_eq!(identity(table, &row), "n1");
    }
}

#[test]
fn an_unset_policy_is_destination() {
    let route = |policy: &[&str], port: &[&str]| {
        let row = mk(&[
            ("ip_prefix", text_of("10.0.0.0/8")),
            ("nexthop", text_of("192.0.2.1")),
            ("policy", Value::set(policy.iter().copied())),
            ("output_port", Value::set(port.iter().copied())),
        ]);
        identity(Table::StaticRoute, &row)
    };
    let planned = nb::route_id("", "10.0.0.0/8", "192.0.2.1", "");
    assert_eq!(route(&[], &[]), planned);
    assert_eq!(route(&["dst-ip"], &[]), planned);
    assert_ne!(route(&["src-ip"], &[]), planned);
    assert_ne!(route(&[], &["rtoe-GR_n1"]), planned);
}

#[test]
fn policies_and_translations_are_what_the_planners_say() {
    let policy = mk(&[("priority", Value::Number(1004)), ("match", text_of("ip4"))]);
    assert_eq!(identity(Table::Policy, &policy), nb::policy_id(1004, "ip4"));
    let nat = mk(&[
        ("type", text_of("snat")),
        ("logical_ip", text_of("10.0.0.0/8")),
    ]);
    assert_eq!(
        identity(Table::Nat, &nat),
        nb::nat_id("snat", "10.0.0.0/8", None)
    );
}

#[test]
fn every_table_has_its_marker_and_every_child_its_column() {
    for table in Table::ALL {
        let has_marker = columns(table)
            .iter()
            .any(|(name, _)| *name == "external_ids");
        assert_eq!(has_marker, table != Table::StaticMacBinding, "{table:?}");
        if let Some((parent, column)) = table.parent() {
            assert!(children(parent).any(|child| child == (table, column)));
        }
    }
    // NB_Global, of which one option is ours, and one table of ACLs, whatever holds them.
    assert_eq!(monitor().len(), Table::ALL.len());
}
