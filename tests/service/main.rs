//! `hermod serve`, as its clients use it over HTTP.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod agents;
mod attachments;
mod background;
mod chat;
mod dashboard;
mod deliveries;
mod email;
mod expectations;
mod hooks;
#[path = "../common/http.rs"]
mod http;
mod inbound;
mod lanes;
mod mail_server;
mod messages;
mod metrics;
mod openai_chat;
mod openai_responses;
mod openapi;
mod operations;
#[path = "../common/pictures.rs"]
mod pictures;
mod receiver;
mod rest;
mod rpc;
mod rpc_agents;
mod rpc_faults;
mod rpc_socket;
#[allow(dead_code)] // other binaries use more of it
#[path = "../common/running.rs"]
mod running;
mod schedules;
mod send;
mod served;
mod session_queue;
mod sessions;
mod shaping;
mod shaping_rpc;
mod shaping_sent;
mod socket;
mod store_limits;
mod telegram;
mod telegram_server;
mod titles;
mod tls;
mod traces;
#[allow(dead_code)] // other binaries use more of it
#[path = "../common/world.rs"]
mod world;
