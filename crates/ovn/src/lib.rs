//! Rows of OVN_Northbound, OVN_Southbound and Open_vSwitch, decoded into the model and encoded into transactions.
//! In: replicas of the databases, diffs. Out: rows by identity with their uuids; one transaction a subject.
//! Invariant: what bears no owner marker of ours is never deleted or changed; sets that others write into are changed by mutate only.
//! Not here: sessions (`ovsdb`), which rows there should be (planners).

mod columns;
pub mod encode;
pub mod global;
pub mod in_force;
pub mod north;
pub mod south;
pub mod switch;

pub use encode::EncodeError;
