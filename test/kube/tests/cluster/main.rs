//! The cluster-manager and the CRDs on a real API server. One program: each more costs its linking.
mod configuration;
mod conflicts;
mod crds;
mod declared;
mod documents;
mod faults;
mod features;
mod harness;
mod manager;
mod networks;
mod rules;
mod schema;
mod sessions;
mod topology;
