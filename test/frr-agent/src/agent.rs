//! A running frr-agent on a runtime of its own.
//! In: the text of its configuration file. Out: the agent; its metrics. Invariant: dropping it is a kill -9.
//! Not here: what it works with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use kube_tests::until;

/// The agent.
pub struct Agent {
    runtime: Option<tokio::runtime::Runtime>,
    metrics: SocketAddr,
    ended: Receiver<String>,
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
        runtime.spawn(async move {
            let never = std::future::pending();
            let ended = frr_agent::serve(node, settings, never).await;
            let words = ended.map_or_else(|error| format!("{error:#}"), |()| "no error".to_owned());
            println!("frr-agent ended: {words}");
            // Nobody may be there to hear it.
            let _ = tell.send(words);
        });
        Self {
            runtime: Some(runtime),
            metrics,
            ended,
        }
    }

    pub(crate) fn last_words(&mut self) -> Option<String> {
        self.ended.try_recv().ok()
    }

    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        // An agent that has just started does not serve yet.
        let mut stream = until("the agent serves metrics", 10, || {
            TcpStream::connect(self.metrics).map_err(|e| e.to_string())
        });
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
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
