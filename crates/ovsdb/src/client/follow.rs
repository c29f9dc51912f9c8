//! What a session has to say and hear until the replica follows, and from then on.
//!
//! In: events of the session. Out: calls to make, and changes of the shared view.
//! Invariant: the old replica is shown until the new dump is whole; a reply that does not fit ends the session.
//! Not here: sockets and time.
//!
//! ```text
//!   set_db_change_aware
//!   get_schema _Server ----> monitor_cond _Server.Database ----> leader, connected, schema
//!   get_schema DATABASE ---> monitor_cond the tables asked ----> Synced <--- monitor_cond_change other rows
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::config::{ClientConfig, MonitorTable};
use super::error::LinkError;
use super::{Conditions, Connection, Shared, TransactCall};
use crate::cache::{Replica, TableLayout, Tables};
use crate::notation::{Condition, Datum, Name, Schema, TransactError, decode_reply};
use crate::session::{Event, Loss, Request, RpcError};

const DATA: &str = "data";
const SERVER: &str = "server";
const SERVER_DATABASE: &str = "_Server";

/// What a call was for.
#[derive(Debug)]
pub(super) enum Token {
    ChangeAware,
    ServerSchema,
    ServerMonitor,
    Schema,
    /// With these conditions, by their number.
    Monitor(u64),
    /// The same.
    Conditions(u64),
    Transact(TransactCall),
}

/// A call the session should make next, without a time limit: silence is noticed by probing.
pub(super) type Call = (Request, Token);

/// The follower of one session.
pub(super) struct Follower<'a> {
    config: &'a ClientConfig,
    shared: &'a Shared,
    /// Built from the schema, waiting for the dump.
    fresh: Option<Replica>,
    synced: bool,
    /// What the monitor was asked for last; nothing before it was.
    asked: Option<Arc<Conditions>>,
    server: Option<Replica>,
    calls: Vec<Call>,
    failed: Option<LinkError>,
}

/// Other rows of a table of a monitor.
#[derive(Serialize)]
struct ConditionsRequest<'a> {
    #[serde(rename = "where")]
    conditions: &'a [Condition],
}

#[derive(Serialize)]
struct MonitorRequest<'a> {
    columns: Vec<&'a str>,
    #[serde(rename = "where", skip_serializing_if = "<[_]>::is_empty")]
    conditions: &'a [Condition],
}

impl<'a> Follower<'a> {
    pub(super) fn new(config: &'a ClientConfig, shared: &'a Shared) -> Self {
        let mut follower = Self {
            config,
            shared,
            fresh: None,
            synced: false,
            asked: None,
            server: None,
            calls: Vec::new(),
            failed: None,
        };
        follower.ask("set_db_change_aware", &[true], Token::ChangeAware);
        follower.ask("get_schema", &[SERVER_DATABASE], Token::ServerSchema);
        follower.ask("get_schema", &[&config.database], Token::Schema);
        follower
    }

    /// Whether transactions may be sent.
    pub(super) const fn is_synced(&self) -> bool {
        self.synced
    }

    /// The calls to make now.
    pub(super) fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Asks for other rows where others are wanted than the monitor has; one that was not asked for yet is asked with them.
    pub(super) fn renew_conditions(&mut self) {
        let Some(asked) = self.asked.clone() else {
            return;
        };
        let wanted = Arc::clone(&self.shared.conditions.borrow());
        if wanted.version == asked.version {
            return;
        }
        let tables = self.config.tables.iter();
        let others = tables.filter(|table| wanted.of(table) != asked.of(table));
        let requests = others.map(|table| {
            let conditions = wanted.of(table);
            (table.table.as_ref(), [ConditionsRequest { conditions }])
        });
        let requests: BTreeMap<&str, _> = requests.collect();
        self.ask(
            "monitor_cond_change",
            &(DATA, DATA, requests),
            Token::Conditions(wanted.version),
        );
        self.asked = Some(wanted);
    }

    /// The replica has the rows that were asked for.
    fn note_conditions(&self, version: u64) {
        self.shared.status.send_if_modified(|status| {
            std::mem::replace(&mut status.conditions, version) != version
        });
    }

    /// The reason to end the session, once.
    pub(super) fn take_failure(&mut self) -> Option<LinkError> {
        self.failed.take()
    }

    pub(super) fn on_event(&mut self, event: Event<'_, Token>) {
        if self.failed.is_some() {
            if let Event::Reply {
                token: Token::Transact(call),
                outcome,
            } = event
            {
                finish(call, outcome);
            }
            return;
        }
        let outcome = match event {
            Event::Reply { token, outcome } => self.on_reply(token, outcome),
            Event::TimedOut { token } => {
                if let Token::Transact(call) = token {
                    // A caller that has gone does not need the result.
                    let _ = call.reply.send(Err(TransactError::TimedOut));
                }
                Ok(())
            }
            Event::Update {
                monitor: DATA,
                updates,
            } => self.on_update(updates),
            Event::Update {
                monitor: SERVER,
                updates,
            } => self.on_server_update(updates, false),
            Event::Update { .. } => Ok(()),
            Event::MonitorCanceled { .. } => Err(LinkError::SchemaChanged),
        };
        self.failed = outcome.err();
    }

    fn on_reply(
        &mut self,
        token: Token,
        outcome: Result<&RawValue, RpcError>,
    ) -> Result<(), LinkError> {
        match (token, outcome) {
            (Token::Transact(call), outcome) => {
                finish(call, outcome);
                Ok(())
            }
            // Servers before 2.9 have neither; they work without.
            (Token::ChangeAware, _) | (Token::ServerSchema | Token::ServerMonitor, Err(_)) => {
                Ok(())
            }
            (Token::ServerSchema, Ok(result)) => self.on_server_schema(result),
            (Token::ServerMonitor, Ok(result)) => self.on_server_update(result, true),
            (Token::Schema, Ok(result)) => self.on_schema(result),
            (Token::Monitor(version), Ok(result)) => self.on_dump(version, result),
            // What has to come of it has come before the reply.
            (Token::Conditions(version), Ok(_)) => {
                self.note_conditions(version);
                Ok(())
            }
            (Token::Schema, Err(source)) => Err(LinkError::Refused {
                method: "get_schema",
                source,
            }),
            (Token::Monitor(_), Err(source)) => Err(LinkError::Refused {
                method: "monitor_cond",
                source,
            }),
            (Token::Conditions(_), Err(source)) => Err(LinkError::Refused {
                method: "monitor_cond_change",
                source,
            }),
        }
    }

    fn on_server_schema(&mut self, result: &RawValue) -> Result<(), LinkError> {
        let schema = decode_schema(result)?;
        let table =
            MonitorTable::new("Database", &["name", "leader", "connected"]).optional(&["schema"]);
        let Ok(layout) = layout(&schema, &table) else {
            return Ok(());
        };
        self.server = Some(Replica::new(Tables::new([layout])));
        let conditions = [Condition::equal(
            "name",
            self.config.database.clone().into_owned(),
        )];
        let columns = vec!["name", "leader", "connected", "schema"];
        let columns = columns
            .into_iter()
            .filter(|column| schema.has_column("Database", column))
            .collect();
        let request = MonitorRequest {
            columns,
            conditions: &conditions,
        };
        let tables = BTreeMap::from([("Database", [request])]);
        self.ask(
            "monitor_cond",
            &(SERVER_DATABASE, SERVER, tables),
            Token::ServerMonitor,
        );
        Ok(())
    }

    fn on_schema(&mut self, result: &RawValue) -> Result<(), LinkError> {
        let config = self.config;
        let schema = Arc::new(decode_schema(result)?);
        let wanted = Arc::clone(&self.shared.conditions.borrow());
        let mut layouts = Vec::new();
        let mut requests = BTreeMap::new();
        for table in &config.tables {
            layouts.push(layout(&schema, table)?);
            let known = |column: &&Name| schema.has_column(&table.table, column);
            let mut columns: Vec<&str> = table
                .columns
                .iter()
                .chain(table.optional.iter().filter(known))
                .map(AsRef::as_ref)
                .collect();
            columns.sort_unstable();
            columns.dedup();
            let request = MonitorRequest {
                columns,
                conditions: wanted.of(table),
            };
            if requests.insert(table.table.as_ref(), [request]).is_some() {
                return Err(LinkError::TableTwice {
                    table: table.table.as_ref().into(),
                });
            }
        }
        self.fresh = Some(Replica::new(Tables::new(layouts)));
        self.ask(
            "monitor_cond",
            &(&config.database, DATA, requests),
            Token::Monitor(wanted.version),
        );
        self.asked = Some(wanted);
        self.shared.view(|view| view.schema = Some(schema));
        Ok(())
    }

    /// The initial dump: fills the fresh replica, and only then shows it.
    fn on_dump(&mut self, conditions: u64, result: &RawValue) -> Result<(), LinkError> {
        let Some(mut fresh) = self.fresh.take() else {
            return Ok(());
        };
        fresh.apply(result.get()).map_err(LinkError::Cache)?;
        let generation = self.shared.view(|view| match &mut view.replica {
            Some(replica) => {
                replica.resync(fresh);
                replica.generation()
            }
            None => view.replica.insert(fresh).generation(),
        });
        self.synced = true;
        self.shared.status.send_modify(|status| {
            status.connection = Connection::Synced;
            status.generation = generation;
            status.sessions += 1;
            status.conditions = conditions;
        });
        Ok(())
    }

    fn on_update(&mut self, updates: &RawValue) -> Result<(), LinkError> {
        if !self.synced {
            // The server sends the dump first; without it there is nothing to change.
            return Err(LinkError::SchemaChanged);
        }
        let outcome = self.shared.view(|view| {
            let replica = view.replica.as_mut()?;
            Some(
                replica
                    .apply(updates.get())
                    .map(|changed| changed.then(|| replica.generation())),
            )
        });
        if let Some(generation) = outcome.transpose().map_err(LinkError::Cache)?.flatten() {
            self.shared
                .status
                .send_modify(|status| status.generation = generation);
        }
        Ok(())
    }

    fn on_server_update(&mut self, updates: &RawValue, initial: bool) -> Result<(), LinkError> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        let schema_before = schema_text(server);
        server.apply(updates.get()).map_err(LinkError::Cache)?;
        if !initial && schema_before != schema_text(server) {
            return Err(LinkError::SchemaChanged);
        }
        let rows = server.table("Database").ok();
        let Some(row) = rows.and_then(|rows| rows.values().next()) else {
            return Ok(());
        };
        if row.get("connected").is_ok_and(|connected: bool| !connected) {
            return Err(LinkError::ClusterLost);
        }
        let leader = row.get("leader").unwrap_or(true);
        self.shared
            .status
            .send_if_modified(|status| std::mem::replace(&mut status.leader, leader) != leader);
        Ok(())
    }

    fn ask(&mut self, method: &'static str, params: &impl Serialize, token: Token) {
        match Request::new(method, params) {
            Ok(request) => self.calls.push((request, token)),
            Err(source) => self.failed = Some(LinkError::Reply { method, source }),
        }
    }
}

/// Tells the caller of a transaction what became of it when its session ended.
pub(super) fn abandon(token: Token, loss: Loss) {
    if let Token::Transact(call) = token {
        let error = match loss {
            Loss::Unsent => TransactError::NotConnected,
            Loss::MaybeApplied => TransactError::MaybeApplied,
        };
        // A caller that has gone does not need the result.
        let _ = call.reply.send(Err(error));
    }
}

fn finish(call: TransactCall, outcome: Result<&RawValue, RpcError>) {
    let result = match outcome {
        Ok(result) => decode_reply(result.get(), &call.kinds),
        Err(RpcError { error, details }) => Err(TransactError::Rpc { error, details }),
    };
    // A caller that has gone does not need the result.
    let _ = call.reply.send(result);
}

fn decode_schema(result: &RawValue) -> Result<Schema, LinkError> {
    serde_json::from_str(result.get()).map_err(|source| LinkError::Reply {
        method: "get_schema",
        source,
    })
}

fn schema_text(server: &Replica) -> Option<Datum> {
    let row = server.table("Database").ok()?.values().next()?;
    row.datum("schema").cloned()
}

/// The columns of `table` that the server knows. Errs where it lacks the table or a column that must be there.
fn layout(schema: &Schema, table: &MonitorTable) -> Result<TableLayout, LinkError> {
    let database = || schema.name.clone();
    let name: Box<str> = table.table.as_ref().into();
    if !schema.has_table(&name) {
        return Err(LinkError::NoTable {
            database: database(),
            table: name,
        });
    }
    let mut columns = Vec::new();
    for column in &table.columns {
        match schema.column(&name, column) {
            Some(kind) => columns.push((Box::from(column.as_ref()), *kind)),
            None => {
                return Err(LinkError::NoColumn {
                    database: database(),
                    table: name,
                    column: column.as_ref().into(),
                });
            }
        }
    }
    let optional = table.optional.iter();
    columns.extend(
        optional.filter_map(|column| {
            Some((Box::from(column.as_ref()), *schema.column(&name, column)?))
        }),
    );
    Ok(TableLayout::new(&name, columns))
}
