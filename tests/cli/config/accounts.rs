//! Keys, accounts, and chains of models.

use hermod::config::auxiliary_chain;
use hermod_actors::model::{ModelRef, PoolStrategy};

use super::{EMBEDDED, SECRET, check, check_wrong, load};

#[test]
fn a_secret_is_only_referred_to_and_never_shown() {
    let credential = |value: &str| format!("[providers.openai]\ncredential = {value}");
    let place = "hermod.toml:2: providers.openai.credential: ";
    let quoted = |text: &str| credential(&format!("\"{text}\""));
    check_wrong(&quoted(SECRET), &[], &[&[place, "write \"env:NAME\"", "\"file:PATH\""]]);
    check_wrong(&quoted(&format!("env:{SECRET}")), &[], &[&[place, "name of a variable"]]);
    check_wrong(&quoted(&format!("file:{SECRET}")), &[], &[&[place, "absolute path"]]);
    check_wrong(&credential("1234567"), &[], &[&[place, "must be a text"]]);
    check_wrong(&credential(&format!("[\"{SECRET}\"]")), &[], &[&[place, "a list is a command here"]]);
    check_wrong(&credential("[1]"), &[], &[&[place, "must be a text"]]);
    let variable = "HERMOD_PROVIDERS__OPENAI__CREDENTIAL";
    check_wrong("", &[(variable, SECRET)], &[&[variable, "write \"env:NAME\""]]);
    let url = format!("[providers.a]\nbase_url = \"https://me:{SECRET}@host/v1\"");
    check_wrong(&url, &[], &[&["belong into the credential"]]);
    let in_query = format!("[providers.a]\nbase_url = \"ftp://host/v1?key={SECRET}\"");
    check_wrong(&in_query, &[], &[&["ftp://host/v1?…"]]);
    for broken in ["\"", "'", "\"\"\"", "'''", ""] {
        check_wrong(
            &credential(&format!("{broken}{SECRET}")),
            &[],
            &[&["hermod.toml:2:", "this is no TOML"]],
        );
    }
    let twice = format!("{0}\ncredential = \"{SECRET}\"", quoted(SECRET));
    check_wrong(&twice, &[], &[&["hermod.toml:3:", "duplicate"]]);
    // That the variable is not there is the matter of whoever uses the provider.
    let fine = quoted("env:NOWHERE");
    check(&fine, &[], &[("providers.openai.credential", "\"env:NOWHERE\"", "hermod.toml:2")]);
}

#[test]
fn a_provider_has_several_credentials_and_says_which_is_next() {
    let acme = |rest: &str| format!("[providers.acme]\nbase_url = \"http://a\"\n{rest}");
    let place = "hermod.toml:3: providers.acme.credentials";
    let list =
        acme("credentials = [\"env:A\", \"file:/b\", [\"command:c\", \"d e\"]]\npool = \"least_used\"");
    let config = load(&list, &[("HERMOD_PROVIDERS__ACME__REQUESTS_PER_MINUTE", "60")]).unwrap();
    let section = &config.providers["acme"];
    let shown: Vec<_> =
        section.credentials.iter().flat_map(|list| &list.0).map(ToString::to_string).collect();
    assert_eq!(shown, ["env:A", "file:/b", "command:c …"]);
    assert_eq!(section.pool.unwrap().0, PoolStrategy::LeastUsed);
    assert_eq!((section.requests_per_minute.unwrap().0, section.tokens_per_minute), (60, None));
    let variable = ("HERMOD_PROVIDERS__ACME__CREDENTIALS", "env:A, env:B");
    assert_eq!(
        load(&acme(""), &[variable]).unwrap().providers["acme"].credentials.as_ref().unwrap().0.len(),
        2
    );
    let both = acme("credentials = [\"env:A\"]\ncredential = \"env:B\"");
    check_wrong(&both, &[], &[&[place, "[\"env:A\"]", "providers.acme.credential is set too"]]);
    check_wrong(&acme("credentials = []"), &[], &[&[place, "must be a list"]]);
    check_wrong(&acme("credentials = \"env:A\""), &[], &[&[place, "must be a list"]]);
    check_wrong(&acme("credentials = [\"env:A\", \"env:A\"]"), &[], &[&[place, "has env:A twice"]]);
    check_wrong(
        &acme(&format!("credentials = [\"env:A\", {SECRET:?}]")),
        &[],
        &[&[place, "write \"env:NAME\""]],
    );
    check_wrong(&acme("credential = [\"env:A\", \"env:B\"]"), &[], &[&["listed in `credentials`"]]);
    check_wrong(&acme("pool = \"any\""), &[], &[&["pool = \"any\": must be \"fill_first\""]]);
    check_wrong(
        &acme("requests_per_minute = 0"),
        &[],
        &[&["requests_per_minute = 0: must be a whole number"]],
    );
    check_wrong(&acme("credentals = []"), &[], &[&["did you mean `providers.acme.credentials`?"]]);
}

#[test]
fn an_oauth_section_is_whole_or_says_what_is_missing() {
    let acme =
        |rest: &str| format!("[providers.acme]\nbase_url = \"http://a\"\n[providers.acme.oauth]\n{rest}");
    let key = |field: &str| format!("providers.acme.oauth.{field}");
    let whole = "token_url = \"https://a/token?x=1\"\nclient_id = \"c\"\nrefresh_token = \"env:R\"";
    let config = load(&acme(&format!("{whole}\nclient_secret = \"file:/s\"")), &[]).unwrap();
    assert!(config.providers["acme"].oauth.is_some());
    check_wrong(
        &acme("client_id = \"c\""),
        &[],
        &[
            &["hermod.toml:4: ", &key("token_url: it is missing")],
            &["hermod.toml:4: ", &key("refresh_token: it is missing; give where")],
        ],
    );
    for field in ["client_secret", "refresh_token"] {
        let wrong = |value: &str| {
            acme(&format!("{whole}\n{field} = {value}").replace("refresh_token = \"env:R\"\nr", "r"))
        };
        check_wrong(&wrong(&format!("{SECRET:?}")), &[], &[&[&key(field), "write \"env:NAME\""]]);
        check_wrong(&wrong("\"command:pass\""), &[], &[&[&key(field), "must be env:NAME or file:PATH"]]);
    }
    check_wrong(
        &acme(&format!("{whole}\ntoken = 1")),
        &[],
        &[&["did you mean `providers.acme.oauth.token_url`?"]],
    );
    check_wrong("[providers.openai]\noauth = 5", &[], &[&["`providers.openai.oauth` is a section"]]);
}

#[test]
fn the_examples_of_the_embedded_file_can_be_used() {
    let is_key = |key: &str| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_example = |line: &&str| match line.split_once(" = ") {
        Some((key, _)) => is_key(key),
        None => line.starts_with('[') && line.ends_with(']'),
    };
    let example = |line: &'static str| line.strip_prefix("# ").filter(is_example);
    let lines: Vec<_> = EMBEDDED.lines().filter_map(example).collect();
    let text = lines.join("\n").replace("providers.NAME", "providers.name");
    let text = text.replace("agents.NAME", "agents.name");
    // It shows both ways to say where keys are.
    let one = text.replacen("credentials = ", "# ", 1);
    let several = text.replacen("credential = ", "# ", 1);
    for text in [one, several] {
        let config = load(&text, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let section = &config.providers["name"];
        assert!(section.oauth.is_some() && section.pool.is_some(), "{text}");
    }
}

#[test]
fn work_beside_a_run_has_a_chain_of_its_own() {
    let main: Vec<ModelRef> = ["a/m", "b/n"].iter().map(|link| link.parse().unwrap()).collect();
    let check = |text: &str, set: &[(&str, &str)], work: &str, expect: &[&str]| {
        let chain = auxiliary_chain(&load(text, set).unwrap(), work, &main);
        assert_eq!(chain.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{text}");
    };
    let all = load("", &[]).unwrap().auxiliary;
    let jobs: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(jobs, ["compression", "memory", "session_search", "title", "vision", "web_extract"]);
    for work in jobs {
        check("", &[], work, &["a/m", "b/n"]);
        let own = format!("[auxiliary.{work}]\nchain = [\"c/x/y\", \"b/n\", \"c/x/y\"]");
        check(&own, &[], work, &["c/x/y", "b/n", "a/m"]);
        check(&format!("{own}\nmain = false"), &[], work, &["c/x/y", "b/n"]);
        let variable = format!("HERMOD_AUXILIARY__{}__CHAIN", work.to_uppercase());
        check("", &[(&variable, "c/x")], work, &["c/x", "a/m", "b/n"]);
    }
    check("[auxiliary.title]\nchain = [\"c/x\"]", &[], "vision", &["a/m", "b/n"]);
    check_wrong(
        "[auxiliary.title]\nmain = false",
        &[],
        &[&["hermod.toml:2: auxiliary.title.main = false: and auxiliary.title.chain is empty"]],
    );
    check_wrong("[auxiliary.titel]\nchain = []", &[], &[&["did you mean `auxiliary.title.chain`?"]]);
    check_wrong("[auxiliary.title]\nchain = [\"c\"]", &[], &[&["auxiliary.title.chain = [\"c\"]"]]);
}
