//! The workload of each run: a script of commands, each of which appends a unique line to a file. Most answers of the
//! scripted model call one command, some call three.

use serde_json::{Value, json};

/// The file of the lines, in the workspace of each run.
pub(super) const LINES: &str = "lines";

/// The lines of a run, grouped by the model's answer that calls their commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload(Vec<Vec<String>>);

impl Workload {
    /// A workload of this many commands: most answers call one, every fourth calls three at once.
    pub(super) fn new(commands: u32) -> Self {
        let mut remaining = commands;
        let answer = |step: u32| {
            let calls = if step.is_multiple_of(4) { remaining.min(3) } else { remaining.min(1) };
            remaining -= calls;
            (calls > 0).then(|| (1..=calls).map(|n| format!("{step}.{n}")).collect())
        };
        Self((1..).map_while(answer).collect())
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(String::as_str)
    }

    /// The command that writes this line, and no other.
    pub(super) fn command(line: &str) -> String {
        let append = format!("echo {line} >> {LINES}");
        match line.bytes().map(usize::from).sum::<usize>() % 3 {
            0 => append,
            1 => format!("sleep 0.05; {append}"),
            _ => format!("{append}; sleep 0.05"),
        }
    }

    /// The script of the rehearsal.
    pub(super) fn script(&self) -> Value {
        let call =
            |line: &String| json!({ "tool": "shell", "arguments": { "command": Self::command(line) } });
        let step = |lines: &Vec<String>| json!({ "call": lines.iter().map(call).collect::<Vec<_>>() });
        let done = json!({ "say": "all lines are written" });
        let steps: Vec<_> = self.0.iter().map(step).chain([done]).collect();
        json!({ "name": "chaos", "scripts": [{ "steps": steps }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::Script;

    #[test]
    fn a_plan_has_as_many_commands_as_it_should() {
        let check = |commands: u32, lines: &[&str]| {
            let plan = Workload::new(commands);
            assert_eq!(plan.lines().collect::<Vec<_>>(), lines);
            Script::parse(plan.script().to_string().as_bytes()).unwrap();
        };
        check(1, &["1.1"]);
        check(5, &["1.1", "2.1", "3.1", "4.1", "4.2"]);
        check(8, &["1.1", "2.1", "3.1", "4.1", "4.2", "4.3", "5.1", "6.1"]);
    }

    #[test]
    fn some_commands_take_their_time_before_or_after_the_line() {
        let plan = Workload::new(20);
        let commands: Vec<_> = plan.lines().map(Workload::command).collect();
        for part in ["sleep 0.05; echo", "lines; sleep 0.05"] {
            assert!(commands.iter().filter(|command| command.contains(part)).count() >= 3, "{commands:?}");
        }
        assert!(commands.iter().filter(|command| !command.contains("sleep")).count() >= 3, "{commands:?}");
    }
}
