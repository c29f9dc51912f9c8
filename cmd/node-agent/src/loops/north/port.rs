//! The management port: on the integration bridge, and in the kernel.
//! In: a view, the conf database, the kernel. Out: the port's row, its addresses, our rules and routes, where one of them differs.
//! Invariant: what somebody takes away by hand comes back; a pass that finds all as wanted writes nothing.
//! Not here: what is wanted (`plan_node::host`), how the kernel is changed (`netlink::write`).

use netlink::write;
use reconcile::Action;

use super::{NorthReconciler, PassError};
use crate::keys::NorthKey;
use crate::transact::transact;

impl NorthReconciler {
    pub(super) async fn port(&mut self) -> Result<Action, PassError> {
        let Some((view, _)) = self.view(NorthKey::Port).await else {
            return Ok(Action::Requeue);
        };
        if let Some(port) = plan_node::host::port(&view) {
            let comment = format!("noverlay node-agent port {}", port.name);
            let made = self
                .known
                .switch
                .with_replica(|replica| ovn::switch::ensure_port(replica, &port, &comment));
            if let Some(transaction) = made.transpose()?.flatten() {
                tracing::info!(port = port.name, "writing the management port");
                let counter = &self.known.metrics.import.transactions;
                transact("switch", &self.known.switch, &transaction, counter).await?;
            }
        }
        if let Some(wanted) = plan_node::host::plan(&view) {
            for change in write::apply(&wanted).await? {
                tracing::info!(change, "changed the kernel");
            }
        }
        self.told.remove(&NorthKey::Port);
        self.readiness.set("port", true);
        Ok(Action::Done)
    }
}
