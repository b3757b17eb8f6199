//! Examples that `--help` shows below the options.

/// Examples of `hermod` itself.
pub(crate) const PROGRAM: &str = "Examples:
  hermod                                   a conversation in the terminal
  hermod attach                            back to the last one
  hermod run \"Find the slowest test in this repository\"
  hermod run --resume last \"And now make it faster\"
  hermod runs resume --all --wait          everything that was unfinished goes on
  hermod tree last --follow                a run and its subagents, live
  hermod report --since 8h                 what happened in the night
  hermod config check                      what is configured, and what is wrong with it

`hermod COMMAND --help` has more.";

/// Examples of `hermod chat`.
pub(crate) const CHAT: &str = "Examples:
  hermod chat --agent reviewer
  hermod chat --resume                     go on with the last conversation
  hermod chat --workspace ./site --model anthropic/claude-sonnet-5-5
  echo \"Name the licence\" | hermod chat --plain

In the chat, /help lists commands and keys.";

/// Examples of `hermod attach`.
pub(crate) const ATTACH: &str = "Examples:
  hermod attach                            the last conversation
  hermod attach 01M83K9RFTGKKXBJ6W1MHEATQX
  hermod attach --plain                    lines of words";

/// Examples of `hermod run`.
pub(crate) const RUN: &str = "Examples:
  hermod run \"Find the slowest test in this repository and say why it is slow\"
  git diff | hermod run \"Review this change\"
  hermod run --workspace ./site --budget iterations=20,tokens=200000 --timeout 10m \"Check every link\"
  hermod run --resume last \"And now fix the two that are broken\"
  hermod run --resume last                 what was unfinished goes on
  hermod run --quiet \"Name the licence\" > licence.txt
  hermod run --rehearse \"Take stock\"       a scripted model: no key and no network needed";

/// Examples of `hermod serve`.
pub(crate) const SERVE: &str = "Examples:
  hermod serve                             on 127.0.0.1:7717, until a signal comes
  hermod tokens create --name ci --scopes read,submit
  curl -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\
       -d '{\"input\": \"Say hello\"}' http://127.0.0.1:7717/v1/runs
  hermod serve --listen 0.0.0.0:7717 --tls-certificate fullchain.pem --tls-key privkey.pem";

/// Examples of `hermod send`.
pub(crate) const SEND: &str = "Examples:
  hermod send build \"The tests are red again\"     the run under way reads it, or a run begins
  hermod send build \"And now?\" --wait             prints the answer
  hermod send build \"Look at this\" --attach screen.png --mode followup
  hermod messages show 01M8…                       what became of it";

/// Examples of `hermod schedules`.
pub(crate) const SCHEDULES: &str = "Examples:
  hermod schedules add backups --cron \"0 6 * * mon-fri\" --tz Europe/Berlin --text \"Check the backups\"
  hermod schedules add watch --every 15m --heartbeat --agent ops --text \"Look at the queue\"
  hermod schedules list                    when each is due next, and why one is paused
  hermod schedules history backups         what ran, what was missed or skipped, and why
  hermod schedules run-now backups --wait  beside its times";

/// Examples of `hermod acp`.
pub(crate) const ACP: &str = "An editor starts it. In the settings of Zed:
  \"agent_servers\": { \"Hermod\": { \"type\": \"custom\", \"command\": \"hermod\", \"args\": [\"acp\"] } }

docs/acp.md says what is supported.";

/// Examples of `hermod agents`.
pub(crate) const AGENTS: &str = "Examples:
  hermod agents list                       the agents of the configuration
  hermod agents show reviewer              what holds for its runs, and where each value is set
  hermod run --agent reviewer \"Review the last commit\"";

/// Examples of `hermod hooks`.
pub(crate) const HOOKS: &str = "Examples:
  hermod hooks list                        the hooks, and how they are doing in a running service
  hermod hooks test guard                  call it with examples
  hermod hooks test guard --event e.json   call it with an event of your own
  hermod hooks enable guard                the running service calls it again";

/// Examples of `hermod service`.
pub(crate) const SERVICE: &str = "Examples:
  hermod service install                   a unit of this user: it starts at login, and after a crash
  sudo hermod service install --system     a unit of the machine, for the user `hermod`
  hermod service install --print           the unit, without any change
  hermod service logs --follow";

/// Examples of `hermod runs list`.
pub(crate) const RUNS_LIST: &str = "Examples:
  hermod runs list --limit 20              the newest 20
  hermod runs list --since 8h --outcome failed,timed_out
  hermod runs list --outcome unfinished --json | jq '.[] | select(.has_process | not).id'";

/// Examples of `hermod doctor`.
pub(crate) const DOCTOR: &str = "Examples:
  hermod doctor                            what is wrong here, and what helps
  hermod doctor --offline --json | jq '.checks[] | select(.result == \"fail\")'
  hermod doctor sandbox                    what the kernel keeps commands of models from";

/// Examples of `hermod init`.
pub(crate) const INIT: &str = "Examples:
  hermod init                              asks, and writes a first configuration
  OPENAI_API_KEY=... hermod init --yes     takes what the environment has, and asks nothing";

/// Examples of `hermod report`.
pub(crate) const REPORT: &str = "Examples:
  hermod report --since 8h                 what happened in the night
  hermod report --since 2026-01-31 --until 2026-02-01 --format markdown > report.md
  hermod report --since 1h --fail-on failed,waiting > /dev/null || notify-send hermod";

/// Examples of `hermod show`.
pub(crate) const SHOW: &str = "Examples:
  hermod show                              the last run, as one reads it
  hermod show 01M83K9RFS --full            all of each result, and what the model thought
  hermod show last --format markdown > run.md";

/// Examples of `hermod runs resume`.
pub(crate) const RESUME: &str = "Examples:
  hermod runs resume --all --wait          until every run has ended or waits for a person
  hermod runs resume last --wait           one conversation; its answer goes to standard output
  hermod runs resume --all                 holds the store until a signal comes";

/// Examples of `hermod tree`.
pub(crate) const TREE: &str = "Examples:
  hermod tree                              all runs that have not ended
  hermod tree last --follow                the last run, until it has ended
  hermod tree last --json | jq '.[0].children[].input'";

/// Examples of `hermod budget`.
pub(crate) const BUDGET: &str = "Examples:
  hermod budget show last
  hermod budget add last iterations=10 usd=0.50
  hermod budget add last tokens=50k --wait   it goes on, and its answer goes to standard output";

/// Examples of `hermod usage`.
pub(crate) const USAGE: &str = "Examples:
  hermod usage                             what a week has cost, and what is left of [limits]
  hermod usage --days 30 --json | jq '[.days[].spent_usd] | add'
  hermod usage --json | jq '.limits[] | select(.period == \"day\").dimensions.usd.left'";

/// Examples of `hermod policy`.
pub(crate) const POLICY: &str = "Examples:
  hermod policy check \"git push --force\"   what happens to this command
  hermod policy check --json - < script.sh
  hermod policy list                       all rules in their order
  hermod policy list --agent reviewer      those of an agent";

/// Examples of `hermod tokens`.
pub(crate) const TOKENS: &str = "Examples:
  hermod tokens create --name phone --scopes read,approve --expires 90d
  TOKEN=$(hermod tokens create --name ci --scopes submit,read --agents builder --json | jq -r .token)
  hermod tokens revoke phone               it is refused from now on, also by a service that runs";

/// Examples of `hermod deliveries`.
pub(crate) const DELIVERIES: &str = "Examples:
  hermod deliveries list                   dead letters, and what waits
  hermod deliveries list --state delivered --target ops
  hermod deliveries retry --target ops     send the dead letters of a target again";
