//! The smallest agent: two tools of one's own, and a model that plays a script.
use std::{error::Error, sync::Arc};

use hermod::{
    Builder, CallEnd, EffectClass, clock,
    rehearsal::{Rehearsal, Script},
    tool::{Settings, ToolContext, TypedTool, make},
};

const SCRIPT: &str = r#"{ "name": "two_tools", "scripts": [{ "steps": [
    { "call": [{ "tool": "get_time" }, { "tool": "calculate", "arguments": { "left": 6, "times": 7 } }] },
    { "say": "It is {{result:1.1}}, and 6 * 7 is {{result:1.2}}." }] }] }"#;

#[derive(Debug)]
pub(crate) struct GetTime;

impl TypedTool for GetTime {
    const NAME: &'static str = "get_time";
    const DESCRIPTION: &'static str = "Says what time it is, in UTC.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = serde_json::Map<String, serde_json::Value>;

    async fn run(_: Self::Arguments, site: ToolContext) -> CallEnd {
        CallEnd::ok(clock::rfc3339(site.now))
    }
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Calculate {
    left: f64,
    times: f64,
}

impl TypedTool for Calculate {
    const NAME: &'static str = "calculate";
    const DESCRIPTION: &'static str = "Multiplies two numbers.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Self;

    async fn run(Self { left, times }: Self, _: ToolContext) -> CallEnd {
        CallEnd::ok((left * times).to_string())
    }
}

pub(crate) async fn answer() -> Result<String, Box<dyn Error>> {
    let model = Rehearsal::start("127.0.0.1:0", Arc::new(Script::parse(SCRIPT.as_bytes())?)).await?;
    let state = tempfile::tempdir()?;
    let builder = Builder::new(state.path()).model("rehearsal/two_tools".parse()?, &model.base_url, None);
    let tools = [make::<GetTime>(Settings::default()), make::<Calculate>(Settings::default())];
    let runtime = tools.into_iter().fold(builder, Builder::tool).start().await?;
    Ok(runtime.chat("What time is it, and what is 6 * 7?").await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", answer().await?);
    Ok(())
}
