//! The lab: a cluster of real parts on one machine, and the proof that it works.
//!
//! In: a command (`up`, `prove`, `node add`, ...). Out: network namespaces with OVS,
//! OVN, FRR and our daemons, a real API server, and lines that say what holds. It
//! links none of the product's code and believes nothing that the product says: it
//! reads kernel, OVN, FRR and packets with foreign tools. `hack/lab` builds and calls it.

mod apiserver;
mod beside;
mod cli;
mod container;
mod daemons;
mod dataplane;
mod down;
mod echo;
mod example;
mod failover;
mod family;
mod frr_k8s;
mod look;
mod measure;
mod membership;
mod netns;
mod networks;
mod node;
mod node_ports;
mod object_to_route;
mod objects;
mod ovn_kubernetes;
mod pods;
mod process;
mod proof;
mod reach;
mod run;
mod services;
mod state;
mod status;
mod supervisor;
mod unmanaged;
mod up;
mod values;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            run::tell(&format!("lab: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
