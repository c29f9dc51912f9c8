//! What the API server itself needs for the manager's writes.
//! In: the writes of a first start. Out: seconds. Invariant: an API server of its own with the same objects of others, on which
//! nobody has written or watches.
//! Not here: deciding what to write.

use std::path::PathBuf;

use super::Size;
use super::cluster::Cluster;
use super::record::Write;

/// Applies the same once, in the same order, as many at once as the manager has under way.
pub(crate) async fn apply_once(tools: PathBuf, size: Size, writes: &[Write]) -> f64 {
    let cluster = Cluster::start(tools, size).await;
    let taken: Vec<Write> = writes.iter().filter(|w| w.code < 300).cloned().collect();
    cluster.replay(&taken).await
}
