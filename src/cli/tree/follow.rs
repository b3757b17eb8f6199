//! Follows a tree: asks whoever holds the store again and again, which costs it what is new since.

use std::time::Duration;

use hermod_actors::{
    model::{RunState, Timestamp},
    port::Clock,
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    board::Board,
    draw,
    execute::{TreeArgs, json},
};
use crate::{
    cli::{
        exit::{Exit, Failure},
        hold::Signals,
        inquiry::{self, Inquiry, Reached, other_answer},
        output::{Audience, escaped, print_over, say},
    },
    clock::SystemClock,
    control::{Answer, Lost, Node, Request},
    environment::Variables,
};

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(200);

/// Shows a tree until it has ended, nobody reads it any more, or a signal comes, which ends the watching only.
pub(super) async fn follow(
    args: TreeArgs,
    inquiry: &Inquiry,
    variables: &Variables,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let told = if args.json { Told::Json(Value::Null) } else { Told::Lines(Board::default()) };
    let mut watch = Watch { run: args.run.map(String::from), told, variables };
    tokio::select! {
        biased;
        exit = signals.either() => Ok(exit),
        watched = watch.go_on(inquiry) => watched.map(|()| Exit::Ok),
    }
}

/// What is watched, and how it is told.
struct Watch<'a> {
    run: Option<String>,
    told: Told,
    variables: &'a Variables,
}

enum Told {
    Lines(Board),
    /// The last line.
    Json(Value),
}

/// Whether there is more to see.
#[derive(PartialEq, Eq)]
enum Next {
    More,
    Nothing,
}

impl Watch<'_> {
    async fn go_on(&mut self, inquiry: &Inquiry) -> Result<(), Failure> {
        loop {
            match inquiry.reach().await? {
                Reached::Holder(mut client) => loop {
                    match client.ask(&self.request(), |_| Ok(())).await {
                        Ok(Answer::Tree(nodes)) => {
                            if self.show(&nodes)? == Next::Nothing {
                                return Ok(());
                            }
                        }
                        Ok(_) => return Err(other_answer().into()),
                        Err(Lost::Gone) => break,
                        Err(Lost::Fault(fault)) => return Err(fault.into()),
                    }
                    sleep(EVERY).await;
                },
                Reached::Store(journal) => {
                    let Answer::Tree(nodes) = inquiry.look(journal, self.request()).await? else {
                        return Err(other_answer().into());
                    };
                    if self.show(&nodes)? == Next::More {
                        say(
                            "there is nothing to follow: no process runs it; `hermod runs resume` takes it up",
                        );
                    }
                    return Ok(());
                }
            }
            sleep(inquiry::PAUSE).await;
        }
    }

    fn request(&self) -> Request {
        Request::Tree { run: self.run.clone() }
    }

    fn show(&mut self, nodes: &[Node]) -> Result<Next, Failure> {
        // What is the last run now may not be it the next time.
        if let (Some(run), [root]) = (&mut self.run, nodes) {
            *run = root.run.id.to_string();
        }
        let audience = match &mut self.told {
            Told::Lines(board) => {
                let lines = draw::lines(nodes, SystemClock::default().at());
                board.show(lines, draw::lines(nodes, Timestamp::default()), self.variables)?
            }
            Told::Json(last) => match json(nodes) {
                line if line == *last => Audience::There,
                line => {
                    *last = line;
                    print_over("", &escaped(&last.to_string()))?
                }
            },
        };
        let is_over = nodes.iter().all(|node| node.run.state == RunState::Ended);
        Ok(if is_over || audience == Audience::Gone { Next::Nothing } else { Next::More })
    }
}
