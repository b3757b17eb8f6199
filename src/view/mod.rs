//! Views: runs, sessions, accounts, approvals, providers, models, prompts, events, access tokens and checks of the store,
//! as clients read them.
//!
//! The tables and the `--json` of the command line, and the control socket, are made from these values. Backups have
//! theirs in `backup/view.rs`, gc and disk usage in `control/maintenance.rs`. `docs/json.md` describes their JSON.
//! Times are written in RFC 3339 and money in dollars; the fields hold [`Timestamp`](hermod_actors::model::Timestamp)s
//! and nano-dollars, which `encoding` converts. Only the prices of models are in dollars from the start.
//!
//! A view is made of values that were read before. No module here reads the store, and none knows a command line, a
//! terminal or a socket.

mod account;
mod agent;
mod approval;
mod channel;
mod day;
mod delivery;
mod encoding;
mod event;
mod hook;
mod message;
mod operations;
mod policy;
mod prompt;
mod provider;
mod reply;
mod report;
mod result;
mod run;
mod schedule;
pub(crate) mod schema;
mod service;
mod store;
mod stream;
mod supervision;
mod token;
mod usage;

pub use crate::store::redb::StoreFootprint;
pub use account::{AccountView, ActiveTimeView, BudgetView, DimensionUsage, PeriodUsageView};
pub use agent::{AgentDetailView, AgentSettingView, AgentView};
pub use approval::{ApprovalView, DecisionView, question_choices};
pub use channel::{ChannelStateView, ChannelView};
pub use day::{DayView, DaysFold, DaysView};
pub use delivery::DeliveryView;
pub use event::EventView;
pub use hook::{HookStateView, HookTrialView, HookView};
pub use message::{FunctionView, MessageView, ToolCallView};
pub use operations::{
    BreakerView, DrainView, ReloadView, ServicePhase, ServiceStatusView, UnfinishedRunsView,
};
pub use policy::{PolicyRuleView, PolicyVerdictView};
pub use prompt::{PromptLayerView, PromptView};
pub use provider::{ConfiguredProviderView, CredentialView, ModelView, ProviderProbeView};
pub use reply::{reply_event, reply_event_name};
pub use report::{
    ReportAgentView, ReportCostView, ReportList, ReportModelView, ReportPauseView, ReportRunView,
    ReportRunsView, ReportSchedulesView, ReportView, ReportWaitKind, ReportWaitView,
};
pub use result::{EndedRunView, ResultView};
pub use run::{
    ConversationListView, ConversationView, NodeView, RunDetailView, RunStateView, RunSummaryView, RunView,
    SessionDetailView, SessionSummaryView, SessionView,
};
pub use schedule::{FurtherOccurrencesView, OccurrenceView, SchedulePauseView, ScheduleView};
pub use service::{InboundAnswerView, MessageAcceptedView, MessageFateView, RunAcceptedView, RunWaitView};
pub use store::{RowsFileView, SetAsideView, StoreRepairView};
pub use stream::{EventIds, derived_event, feed_entry, record_event, stream_event};
pub use supervision::{SupervisedChildView, SupervisedSessionView, SupervisionView};
pub use token::{CreatedTokenView, TokenView};
pub use usage::{ModelUsageView, RunUsageFold, UsageFold, UsageView};
