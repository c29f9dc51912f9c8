//! The frr-agent on a real FRR, a real API server and peers in network namespaces. One program: each more costs its linking.
mod failures;
mod frozen;
mod last_good;
mod load;
mod objects;
mod passwords;
mod refused;
mod reports;
mod restore;
mod silent;
mod tool;
