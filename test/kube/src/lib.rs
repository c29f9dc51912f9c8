//! Tests against a real kube-apiserver.
