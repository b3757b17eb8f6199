//! The export of traces to a collector of OpenTelemetry.

use std::ffi::OsString;

use crate::{
    served::{Served, scripts},
    world::World,
};

/// A service with these settings of its environment.
#[track_caller]
fn served_with(scripts: &serde_json::Value, settings: &[(&'static str, &str)]) -> Served {
    let settings = settings.iter().map(|(name, value)| (*name, OsString::from(value)));
    Served::start_with((World::new(), scripts), |_| settings.collect())
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_that_cannot_export_says_so() {
    let mut served = served_with(&scripts(), &[("HERMOD_TELEMETRY__OTLP_ENDPOINT", "http://127.0.0.1:9")]);
    served.stop();
    served.start_noting(Some("this build cannot; install one with `cargo install --path . --features otlp`"));
}

#[cfg(feature = "otlp")]
mod exported {
    use std::{
        collections::VecDeque,
        fs,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::{TcpListener, TcpStream},
        sync::{Arc, Mutex},
        thread,
    };

    use hermod::Outcome;
    use hermod_actors::model::RunId;
    use opentelemetry_proto::tonic::{
        collector::trace::v1::ExportTraceServiceRequest,
        common::v1::{KeyValue, any_value::Value},
        trace::v1::{Span, status::StatusCode},
    };
    use prost::Message as _;
    use serde_json::json;

    use super::{Served, scripts, served_with};
    use crate::running::until;

    /// A collector on a port of its own.
    struct Collector {
        address: String,
        seen: Arc<Mutex<Seen>>,
    }

    #[derive(Default)]
    struct Seen {
        /// Lines of the heads of requests.
        heads: Vec<String>,
        requests: Vec<ExportTraceServiceRequest>,
        /// Answers to the next requests, whose spans do not count.
        refusals: VecDeque<&'static str>,
    }

    /// Where a collector can be, although there is none yet.
    fn free_address() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    impl Collector {
        fn start(address: &str) -> Self {
            let listener = TcpListener::bind(address).expect("the port is free");
            let seen = Arc::<Mutex<Seen>>::default();
            let collector =
                Self { address: listener.local_addr().unwrap().to_string(), seen: Arc::clone(&seen) };
            // Ends with the process of the test.
            thread::spawn(move || listener.incoming().flatten().for_each(|stream| take(&stream, &seen)));
            collector
        }

        fn endpoint(&self) -> String {
            format!("http://{}", self.address)
        }

        fn spans(&self) -> Vec<Span> {
            let seen = self.seen.lock().unwrap();
            let of_services = seen.requests.iter().flat_map(|request| &request.resource_spans);
            of_services.flat_map(|service| &service.scope_spans).flat_map(|it| it.spans.clone()).collect()
        }

        /// The spans, once there are so many.
        #[track_caller]
        fn wait_for(&self, count: usize) -> Vec<Span> {
            until("the spans have come", || self.spans().len() >= count);
            self.spans()
        }
    }

    /// Takes a request and answers.
    fn take(mut stream: &TcpStream, seen: &Mutex<Seen>) {
        let mut reader = BufReader::new(stream);
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut seen = seen.lock().unwrap();
        seen.heads.extend(head);
        let status = seen.refusals.pop_front();
        if status.is_none() {
            seen.requests.push(ExportTraceServiceRequest::decode(&*body).expect("a request"));
        }
        let status = status.unwrap_or("200 OK\r\ncontent-type: application/x-protobuf");
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        // A client that is killed meanwhile asks again.
        let (Ok(()) | Err(_)) = stream.write_all(answer.as_bytes());
    }

    #[track_caller]
    fn submit(served: &Served, input: &str) -> String {
        let run = served.post("/v1/runs", &json!({ "input": input })).json()["run"].clone();
        run.as_str().expect("a run").to_owned()
    }

    #[track_caller]
    fn ended(served: &Served, run: &str) -> String {
        let ended = served.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
        ended["outcome"].as_str().expect("an outcome").to_owned()
    }

    fn text(span: &Span, key: &str) -> Option<String> {
        text_of(&span.attributes, key)
    }

    fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
        let found = attributes.iter().find(|attribute| attribute.key == key)?;
        let Some(Value::StringValue(text)) = found.value.clone()?.value else { panic!("{key} is no text") };
        Some(text)
    }

    #[track_caller]
    fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
        let found: Vec<_> = spans.iter().filter(|span| span.name.starts_with(name)).collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", names(spans));
        found[0]
    }

    fn names(spans: &[Span]) -> Vec<&str> {
        let mut names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The id of the trace of a run.
    fn trace_of(run: &str) -> Vec<u8> {
        run.parse::<RunId>().unwrap().bits().to_be_bytes().to_vec()
    }

    #[test]
    fn a_run_with_tools_and_a_subagent_is_one_trace() {
        let collector = Collector::start("127.0.0.1:0");
        let call = json!([
            { "tool": "shell", "arguments": { "command": "echo hunter2; exit 3" } },
            { "tool": "delegate_task", "arguments": { "goal": "child hunter2" } },
        ]);
        let scripts = json!([
            { "when": "child", "steps": [{ "say": "done hunter2" }] },
            { "steps": [{ "call": call }, { "say": "delegated hunter2" }] },
        ]);
        let endpoint = collector.endpoint();
        let served = served_with(
            &scripts,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collector-token-1"),
                ("OTEL_SERVICE_NAME", "agents"),
            ],
        );
        let run = submit(&served, "go hunter2");
        assert_eq!(ended(&served, &run), Outcome::Completed.name());
        let spans = collector.wait_for(7);
        assert_eq!(spans.len(), 7, "{:?}", names(&spans));
        let trace = trace_of(&run);
        for span in &spans {
            assert_eq!(span.trace_id, trace, "{span:?}");
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
            let (from, to) = (1_700_000_000_000_000_000, 4_000_000_000_000_000_000);
            assert!((from..to).contains(&span.start_time_unix_nano), "nanoseconds of this century");
        }
        let of_run = |span: &&Span| text(span, "hermod.run.id").as_deref() == Some(&run);
        let root = spans.iter().find(of_run).unwrap();
        assert_eq!((root.name.as_str(), &*root.parent_span_id), ("invoke_agent default", &[][..]));
        let (shell, delegate) =
            (named(&spans, "execute_tool shell"), named(&spans, "execute_tool delegate_task"));
        assert_eq!((&shell.parent_span_id, &delegate.parent_span_id), (&root.span_id, &root.span_id));
        let child = spans.iter().find(|span| span.parent_span_id == delegate.span_id).unwrap();
        assert_eq!(child.name, "invoke_agent default");
        let chats: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with("chat ")).collect();
        let of_child = chats.iter().filter(|chat| chat.parent_span_id == child.span_id).count();
        assert_eq!((chats.len(), of_child), (3, 1));
        let session = text(root, "gen_ai.conversation.id");
        assert!(session.is_some() && session != text(child, "gen_ai.conversation.id"));
        assert_eq!(text(chats[0], "gen_ai.operation.name").as_deref(), Some("chat"));
        assert!(root.status.is_none(), "it completed");
        let seen = collector.seen.lock().unwrap();
        let resource = seen.requests[0].resource_spans[0].resource.clone().unwrap();
        assert_eq!(text_of(&resource.attributes, "service.name").as_deref(), Some("agents"));
        for line in [
            "POST /v1/traces HTTP/1.1",
            "authorization: Bearer collector-token-1",
            "content-type: application/x-protobuf",
        ] {
            assert!(seen.heads.iter().any(|head| head == line), "{line}: {:?}", seen.heads);
        }
        assert!(!format!("{:?}", seen.requests).contains("hunter2"), "no text is exported");
        drop(seen);
        let metrics = served.get("/metrics").text();
        assert!(metrics.contains("\nhermod_spans_exported_total 7\n"), "{metrics}");
        assert!(metrics.contains("\nhermod_span_export_failures_total 0\n"), "{metrics}");
    }

    #[test]
    fn a_run_that_is_killed_is_one_trace_and_a_repeat_has_the_same_ids() {
        let collector = Collector::start("127.0.0.1:0");
        let endpoint = collector.endpoint();
        let mut served = served_with(&scripts(), &[("HERMOD_TELEMETRY__OTLP_ENDPOINT", &endpoint)]);
        let run = submit(&served, "wait");
        until("the command runs", || served.world.work().join("ran").exists());
        served.kill();
        served.start_again();
        assert!(collector.spans().is_empty(), "nothing has ended");
        served.world.release();
        assert_eq!(ended(&served, &run), Outcome::Completed.name());
        let spans = collector.wait_for(4);
        assert_eq!(spans.len(), 4, "{:?}", names(&spans));
        assert!(spans.iter().all(|span| span.trace_id == trace_of(&run)));
        let root = named(&spans, "invoke_agent");
        assert!(root.events.iter().any(|event| event.name == "hermod.session.revived"), "{root:?}");
        let shell = named(&spans, "execute_tool shell");
        let revived = root.events.iter().find(|event| event.name == "hermod.session.revived").unwrap();
        assert!(shell.start_time_unix_nano < revived.time_unix_nano, "it began before the kill");
        assert!(shell.end_time_unix_nano > revived.time_unix_nano, "and ended after it");
        served.stop();
        let place = served.world.state().join("traces.json");
        let kept = fs::read_to_string(&place).unwrap();
        assert!(kept.starts_with(r#"{"after":""#), "{kept}");
        fs::write(&place, r#"{"after":"0.0","restored":0}"#).unwrap();
        served.start_again();
        let again = collector.wait_for(8);
        assert_eq!((&again[4..], again.len()), (&spans[..], 8));
    }

    #[test]
    fn a_further_leg_is_exported_once_as_a_part_of_the_first() {
        let collector = Collector::start("127.0.0.1:0");
        let call = json!([{ "tool": "shell", "arguments": { "command": "true" } }]);
        let scripts = json!([{ "steps": [{ "call": call }, { "say": "one" }, { "say": "two" }] }]);
        let served = served_with(&scripts, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())]);
        let request = json!({ "input": "go", "budget": { "iterations": 1 } });
        let run = served.post("/v1/runs", &request).json()["run"].as_str().unwrap().to_owned();
        assert_eq!(ended(&served, &run), Outcome::BudgetExhausted.name());
        let legs = || -> Vec<Span> {
            collector.spans().into_iter().filter(|span| span.name.starts_with("invoke_agent")).collect()
        };
        until("the first leg has come", || legs().len() == 1);
        let first = collector.spans();
        let raised = served.post(&format!("/v1/runs/{run}/budget"), &json!({ "add": { "iterations": 3 } }));
        assert_eq!(raised.status, 200);
        assert_eq!(ended(&served, &run), Outcome::Completed.name());
        until("the second leg has come", || legs().len() > 1);
        let (legs, all) = (legs(), collector.spans());
        assert_eq!(legs.len(), 2, "{:?}", names(&all));
        assert_eq!((&legs[1].trace_id, &legs[1].parent_span_id), (&legs[0].trace_id, &legs[0].span_id));
        assert!(legs[1].start_time_unix_nano >= legs[0].end_time_unix_nano);
        assert_eq!(text(&legs[0], "error.type").as_deref(), Some("budget_exhausted"));
        let more = &all[first.len()..];
        assert!(more.iter().all(|span| first.iter().all(|known| known.span_id != span.span_id)));
        let of_leg = more.iter().filter(|span| span.parent_span_id == legs[1].span_id).count();
        assert!(of_leg >= 1, "{:?}", names(more));
    }

    #[test]
    fn what_ends_while_the_collector_is_away_comes_later() {
        let address = free_address();
        let endpoint = format!("http://{address}");
        let mut served = served_with(&scripts(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
        let first = submit(&served, "one");
        assert_eq!(ended(&served, &first), Outcome::Completed.name());
        let failures = |served: &Served| {
            let metrics = served.get("/metrics").text();
            let line = metrics.lines().find(|line| line.starts_with("hermod_span_export_failures_total "));
            line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        until("the export fails", || failures(&served) > 0);
        served.kill();
        served.start_again();
        let second = submit(&served, "fail");
        assert_eq!(ended(&served, &second), Outcome::Failed.name());
        until("the export fails again", || failures(&served) > 0);
        let collector = Collector::start(&address);
        // What is refused for a while is sent again.
        collector.seen.lock().unwrap().refusals.push_back("503 Service Unavailable\r\nretry-after: 1");
        let spans = collector.wait_for(4);
        assert_eq!(spans.len(), 4, "{:?}", names(&spans));
        for run in [&first, &second] {
            let of_run: Vec<&Span> = spans.iter().filter(|span| span.trace_id == trace_of(run)).collect();
            assert_eq!(of_run.len(), 2, "{run}: {:?}", names(&spans));
        }
        let failed = spans.iter().find(|span| text(span, "hermod.run.outcome").as_deref() == Some("failed"));
        let failed = failed.unwrap();
        assert_eq!(failed.status.as_ref().unwrap().code, i32::from(StatusCode::Error));
        assert_eq!(text(failed, "error.type").as_deref(), Some("failed"));
        served.stop();
        // A run of another process is exported by the next service.
        served.world.ok(&["run", served.script(), "three"]);
        served.start_again();
        assert_eq!(collector.wait_for(6).len(), 6);
    }

    #[test]
    fn what_a_collector_never_takes_is_given_up() {
        let collector = Collector::start("127.0.0.1:0");
        collector.seen.lock().unwrap().refusals.push_back("400 Bad Request");
        let endpoint = collector.endpoint();
        let served = served_with(&scripts(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
        let first = submit(&served, "one");
        ended(&served, &first);
        until("it is refused", || collector.seen.lock().unwrap().refusals.is_empty());
        let second = submit(&served, "two");
        ended(&served, &second);
        let spans = collector.wait_for(2);
        assert!(spans.iter().all(|span| span.trace_id == trace_of(&second)), "{:?}", names(&spans));
    }

    #[test]
    fn what_hinders_the_export_does_not_hinder_the_service() {
        let settings = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
            ("HERMOD_TELEMETRY__OTLP_HEADERS", "env:NO_SUCH_VARIABLE"),
        ];
        let mut served = served_with(&scripts(), &settings);
        served.stop();
        served.start_noting(Some("traces    not exported: telemetry.otlp_headers: env:NO_SUCH_VARIABLE"));
        let run = submit(&served, "one");
        assert_eq!(ended(&served, &run), Outcome::Completed.name());
    }
}
