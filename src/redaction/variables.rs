//! Finds secrets among the variables of the environment by their names, and in URLs.

use std::{collections::BTreeMap, path::Path};

use super::{Redactor, of_process};
use crate::secret::{Reference, Secret};

/// Ends of names of variables that hold secrets.
const ENDS: &[&str] = &[
    "_KEY",
    "_KEYS",
    "APIKEY",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "_PASS",
    "_PAT",
];
/// Parts of names, between underscores, that tell a secret wherever they are.
const PARTS: &[&str] = &["SECRET", "PASSWORD", "PASSWD", "PASSPHRASE"];
/// A number with fewer digits is a setting, such as a limit or a time.
const MIN_SECRET_DIGITS: usize = 12;

/// This process redacts the secrets of its environment from now on: values of variables with such names, and passwords
/// in URLs.
pub fn learn_variables(variables: &BTreeMap<String, String>) {
    learn_from(of_process(), variables);
}

/// This process redacts the value of a variable that a command gets from now on, whatever the name of the variable.
/// Words, short numbers and paths that exist stay readable.
pub fn learn_variable(name: &str, value: &str) {
    learn_passed(of_process(), name, value);
}

fn learn_passed(redactor: &Redactor, name: &str, value: &str) {
    let value = value.trim();
    let mut secrets: Vec<Secret> = secrets_of_url(value).into_iter().map(Secret::new).collect();
    if !is_setting(value) {
        secrets.push(Secret::new(value));
    }
    redactor.learn_all(secrets.iter().map(|secret| (name, secret)));
}

/// This process redacts the secrets of a configured URL from now on: the password, and query values with such names.
pub fn learn_url(label: &str, url: &str) {
    let secrets: Vec<Secret> = secrets_of_url(url).into_iter().map(Secret::new).collect();
    of_process().learn_all(secrets.iter().map(|secret| (label, secret)));
}

fn learn_from(redactor: &Redactor, variables: &BTreeMap<String, String>) {
    let mut found = Vec::new();
    for (name, value) in variables {
        let value = value.trim();
        if is_secret_name(name) && !is_setting(value) {
            found.push((name.as_str(), Secret::new(value)));
        }
        found.extend(secrets_of_url(value).into_iter().map(|part| (name.as_str(), Secret::new(part))));
    }
    redactor.learn_all(found.iter().map(|(name, secret)| (*name, secret)));
}

/// True if a variable, or a field of a query, with this name holds a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name == "KEY"
        || ENDS.iter().any(|end| name.ends_with(end))
        || name.split('_').any(|part| PARTS.contains(&part))
}

/// True if the value of such a variable is none: a reference, a file that exists, a short number.
fn is_setting(value: &str) -> bool {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit()) && value.len() < MIN_SECRET_DIGITS;
    let is_path = || (value.starts_with("~/") || Path::new(value).is_absolute()) && Path::new(value).exists();
    is_number || value.parse::<Reference>().is_ok() || is_path()
}

/// The password in a URL, and the query values whose names tell a secret, as written there.
fn secrets_of_url(text: &str) -> Vec<&str> {
    let Some((_, rest)) = text.split_once("://") else { return Vec::new() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
    let query = rest.split_once('?').map_or("", |(_, query)| query.split('#').next().unwrap_or_default());
    let fields = query.split('&').filter_map(|field| field.split_once('='));
    let values = fields.filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value);
    password.into_iter().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_variables_hold_secrets() {
        let check = |name: &str, expect: bool| assert_eq!(is_secret_name(name), expect, "{name}");
        for name in
            ["ACME_API_KEY", "GITHUB_TOKEN", "github_token", "PGPASSWORD", "DB_PASSWD", "SECRET_KEY_BASE"]
        {
            check(name, true);
        }
        for name in
            ["AWS_CREDENTIALS", "X_CREDENTIAL", "api-key", "KEY", "OPENAI_APIKEY", "GH_PAT", "SSH_PASSPHRASE"]
        {
            check(name, true);
        }
        for name in
            ["PATH", "HOME", "MONKEY", "KEYBOARD", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "SECRETARY", "TOKENIZER"]
        {
            check(name, false);
        }
    }

    #[test]
    fn settings_are_no_secrets() {
        let check = |value: &str, expect: bool| assert_eq!(is_setting(value), expect, "{value}");
        check("env:ACME_KEY", true);
        check("file:/run/key", true);
        check("3600", true);
        check("123456789012", false);
        check("/", true);
        check("/nowhere/but/a+secret", false);
        check("sk-acme-0123456789", false);
    }

    #[test]
    fn urls_may_hold_secrets() {
        let check = |url: &str, expect: &[&str]| assert_eq!(secrets_of_url(url), expect, "{url}");
        check("postgres://me:pass-word-1@db:5432/x", &["pass-word-1"]);
        check("http://me:pa@ss@db", &["pa@ss"]);
        check("https://host/v1?key=k-1&model=m&api_key=k-2#end", &["k-1", "k-2"]);
        check("https://host/a:b@c", &[]);
        check("no url", &[]);
    }

    #[test]
    fn the_value_of_a_passed_variable_is_redacted_whatever_its_name() {
        let redactor = Redactor::default();
        let check = |value: &str, expect: &str| {
            learn_passed(&redactor, "TRACKER", value);
            assert_eq!(redactor.redact(value.trim()), expect);
        };
        check("tracker-0123456789\n", "[redacted:TRACKER]");
        check("https://me:pass-word-7@tracker/x", "[redacted:TRACKER]");
        assert_eq!(
            redactor.redact("https://me:pass-word-7@tracker"),
            "https://me:[redacted:TRACKER]@tracker"
        );
        check("/", "/");
        check("3600", "3600");
        check("production", "production");
    }

    #[test]
    fn variables_are_learned_with_their_names() {
        let redactor = Redactor::default();
        let variables = [
            ("ACME_KEY", " sk-acme-0123456789\n"),
            ("DATABASE_URL", "postgres://me:pass-word-1@db/x"),
            ("HOME", "/home/somewhere"),
            ("HERMOD_CREDENTIAL", "env:ACME_KEY"),
            ("RATE_TOKEN", "60000"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        learn_from(&redactor, &BTreeMap::from(variables));
        assert_eq!(
            redactor.redact("sk-acme-0123456789 pass-word-1 /home/somewhere env:ACME_KEY 60000"),
            "[redacted:ACME_KEY] [redacted:DATABASE_URL] /home/somewhere env:ACME_KEY 60000"
        );
    }
}
