//! A running frr-agent on a runtime of its own.
//! In: the text of its configuration file. Out: the agent; its metrics. Invariant: dropping it is a kill -9.
//! Not here: what it works with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kube_tests::until;

/// The agent.
pub struct Agent {
    runtime: Option<tokio::runtime::Runtime>,
    metrics: SocketAddr,
    ended: Receiver<String>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Agent {
    /// Starts it; its threads and the programs that it starts are in the calling thread's namespaces.
    #[must_use]
    pub fn start(node: &'static str, config: &str) -> Self {
        let settings =
            settings::parse("noverlay.toml", config, "127.0.0.1:0".parse().unwrap()).unwrap();
        let metrics = settings.metrics_address;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (tell, ended) = channel();
        let (end, asked) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let reported = async {
                // Whoever drops the agent kills it: nothing is reported then.
                if asked.await.is_err() {
                    std::future::pending::<()>().await;
                }
                Ok(())
            };
            let ended = frr_agent::serve(node, settings, reported).await;
            let words = ended.map_or_else(|error| format!("{error:#}"), |()| "no error".to_owned());
            println!("frr-agent ended: {words}");
            // Nobody may be there to hear it.
            let _ = tell.send(words);
        });
        Self {
            runtime: Some(runtime),
            metrics,
            ended,
            end: Some(end),
        }
    }

    /// Tells it to end, as SIGTERM does.
    pub(crate) fn tell_to_end(&mut self) {
        if let Some(end) = self.end.take() {
            // It may have ended by itself.
            let _ = end.send(());
        }
    }

    pub(crate) fn last_words(&mut self) -> Option<String> {
        self.ended.try_recv().ok()
    }

    /// What it answers to a GET, headers included.
    pub(crate) fn get(&self, path: &str, deadline: Duration) -> Result<String, String> {
        let words = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect_timeout(&self.metrics, deadline).map_err(words)?;
        stream.set_read_timeout(Some(deadline)).map_err(words)?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(words)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(words)?;
        Ok(text)
    }

    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        // An agent that has just started does not serve yet.
        let text = until("the agent serves metrics", 10, || {
            self.get("/metrics", Duration::from_secs(5))
        });
        // One that is not there yet counts as zero, one that is never there must not.
        let documented = include_str!("../../../docs/operations.md");
        assert!(
            documented.contains(&format!("| `{name}` |")),
            "there is no metric {name}"
        );
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|r| r.starts_with([' ', '{'])) && line.contains(labels)
        });
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
