//! Rows of OVN_Northbound and Open_vSwitch, lifted into `model` and lowered into transactions.
//! In: replicas of the two databases, and diffs. Out: what stands there, and transactions for `ovsdb::Client`.
//! Invariant: what bears no stamp of ours is never changed or deleted, but for the references that our rows need;
//! a transaction is guarded by what it assumes, and its comment begins with `noverlay`.
//! Not here: what is wanted (planners), connections (`ovsdb`), when something is sent (the door).
//!
//! ```text
//!  Replica --north::Standing--> owned rows ----Diff--> lower::topology --> Transaction
//!          --north::Imports---> imported rows -Diff--> lower::imports ---> Transactions
//!          --switch::Switch---> chassis, ports         switch::ports ----> Transaction
//! ```

mod form;
pub mod lower;
pub mod north;
pub mod switch;

pub use lower::LowerError;
pub use north::{ImportDiff, Imports, RowDiff, Standing};
pub use switch::{PortError, Switch};
