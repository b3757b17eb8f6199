//! Limits the network of a command to listed hosts.
//!
//! The command runs in a network namespace whose only interface is its own loopback. In there listens an HTTP proxy that
//! this process serves from outside: it judges each host by the list, and connects only to those that are allowed.

mod addresses;
mod answer;
mod body;
mod hosts;
mod namespace;
mod proxy;
mod refused_hosts;
mod request;
mod rules;

pub use hosts::HostRule;
pub use rules::NetworkAccess;
pub(super) use {
    namespace::enter as enter_namespace, proxy::HostProxy, refused_hosts::RefusedHosts, rules::NetworkError,
};
