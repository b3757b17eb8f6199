//! The files of the dashboard. A new file is one line here.

/// A file that is part of the program.
pub(super) struct Asset {
    /// Its path in the service.
    pub(super) path: &'static str,
    /// Its media type.
    pub(super) media: &'static str,
    /// Its content.
    pub(super) text: &'static str,
}

macro_rules! assets {
    ($($path:literal $media:ident $file:literal,)*) => {
        [$(Asset { path: $path, media: $media, text: include_str!(concat!("web/", $file)) },)*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// All files.
pub(super) const ASSETS: &[Asset] = &assets![
    "/" HTML "index.html",
    "/dashboard/style.css" CSS "style.css",
    "/dashboard/icon.svg" IMAGE "icon.svg",
    "/dashboard/api.js" SCRIPT "api.js",
    "/dashboard/app.js" SCRIPT "app.js",
    "/dashboard/approvals.js" SCRIPT "approvals.js",
    "/dashboard/chart.js" SCRIPT "chart.js",
    "/dashboard/compose.js" SCRIPT "compose.js",
    "/dashboard/dom.js" SCRIPT "dom.js",
    "/dashboard/format.js" SCRIPT "format.js",
    "/dashboard/message.js" SCRIPT "message.js",
    "/dashboard/new-run.js" SCRIPT "new-run.js",
    "/dashboard/overview.js" SCRIPT "overview.js",
    "/dashboard/parts.js" SCRIPT "parts.js",
    "/dashboard/providers.js" SCRIPT "providers.js",
    "/dashboard/records.js" SCRIPT "records.js",
    "/dashboard/run.js" SCRIPT "run.js",
    "/dashboard/runs.js" SCRIPT "runs.js",
    "/dashboard/schedules.js" SCRIPT "schedules.js",
    "/dashboard/session.js" SCRIPT "session.js",
    "/dashboard/sessions.js" SCRIPT "sessions.js",
    "/dashboard/shortcuts.js" SCRIPT "shortcuts.js",
    "/dashboard/stream.js" SCRIPT "stream.js",
    "/dashboard/theme.js" SCRIPT "theme.js",
    "/dashboard/timeline.js" SCRIPT "timeline.js",
    "/dashboard/transcript.js" SCRIPT "transcript.js",
    "/dashboard/tree.js" SCRIPT "tree.js",
    "/dashboard/usage.js" SCRIPT "usage.js",
];
