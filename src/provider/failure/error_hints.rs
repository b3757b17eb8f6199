//! What vendors' error codes and types mean: [`ErrorHint`], and the tables of codes. Phrases in texts are in
//! `phrases.rs`; `classify.rs` turns a hint into a failure class.

/// The meaning of a code or a phrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorHint {
    /// The account's quota or balance is used up.
    Quota,
    /// The content is refused.
    Content,
    /// The view is too long.
    Context,
    /// The model does not exist, or not for this account.
    Model,
    /// Too many requests.
    RateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// The credential is not accepted.
    Auth,
    /// A server on the way timed out.
    Timeout,
    /// A connection on the way broke.
    Network,
    /// The path does not exist.
    Path,
    /// The request is not accepted in its current form.
    Request,
    /// The provider has an internal error.
    Server,
}

/// A code in the form of the tables: lower-case letters and digits, without a final `error` or `exception`.
pub(super) fn normalize_code(code: &str) -> String {
    let mut plain: String =
        code.chars().take(64).filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    for ending in ["exception", "error"] {
        if let Some(without) = plain.strip_suffix(ending).map(str::len) {
            plain.truncate(without);
        }
    }
    plain
}

/// The hint of an unambiguous code.
pub(super) fn hint_of_code(plain: &str) -> Option<ErrorHint> {
    CODES.iter().find(|(_, codes)| codes.contains(&plain)).map(|(hint, _)| *hint)
}

/// The hint of a code that vendors use for many errors; a phrase in the text takes precedence.
pub(super) fn hint_of_loose_code(plain: &str) -> Option<ErrorHint> {
    LOOSE_CODES.iter().find(|(_, codes)| codes.contains(&plain)).map(|(hint, _)| *hint)
}

const CODES: &[(ErrorHint, &[&str])] = &[
    (
        ErrorHint::Quota,
        &[
            "allocationquotafreetieronly",
            "arrearage",
            "billing",
            "billingdisabled",
            "billinghardlimitreached",
            "billingnotactive",
            "credits",
            "exceededcurrentquota",
            "insufficientbalance",
            "insufficientcredits",
            "insufficientfunds",
            "insufficientquota",
            "outofcredits",
            "paymentrequired",
            "quotaexhausted",
            "quotaperday",
            "usagenotincluded",
        ],
    ),
    (
        ErrorHint::Content,
        &[
            "blockedbysafety",
            "contentfilter",
            "contentfiltered",
            "contentfilterpolicy",
            "contentpolicy",
            "contentpolicyviolation",
            "cyberpolicyviolation",
            "datainspectionfailed",
            "moderationblocked",
            "promptblocked",
            "responsibleaipolicyviolation",
        ],
    ),
    (
        ErrorHint::Context,
        &[
            "contextlengthexceeded",
            "contextwindowexceeded",
            "exceedcontextsize",
            "modelcontextwindowexceeded",
            "promptistoolong",
            "prompttoolong",
            "requesttoolarge",
            "toomanyprompttokens",
        ],
    ),
    (
        ErrorHint::Model,
        &[
            "deploymentnotfound",
            "invalidmodel",
            "invalidmodelid",
            "modelnotavailable",
            "modelnotexist",
            "modelnotfound",
            "modelnotsupported",
            "nosuchmodel",
            "unknownmodel",
        ],
    ),
    (
        ErrorHint::RateLimit,
        &[
            "limitrequests",
            "modelcooldown",
            "quotaexceeded",
            "ratelimit",
            "ratelimited",
            "ratelimitexceeded",
            "ratelimitreached",
            "requestlimitexceeded",
            "resourceexhausted",
            "throttled",
            "throttling",
            "throttlingallocationquota",
            "throttlingburstrate",
            "throttlingratequota",
            "toomanyrequests",
            "usagelimitexceeded",
            "usagelimitreached",
            "userratelimitexceeded",
        ],
    ),
    (
        ErrorHint::Overloaded,
        &[
            "capacityexceeded",
            "engineoverloaded",
            "insufficientsystemresource",
            "modelcapacityexhausted",
            "modelnotready",
            "modeloverloaded",
            "overloaded",
            "serverisoverloaded",
            "serveroverloaded",
            "serviceunavailable",
            "slowdown",
            "unavailable",
        ],
    ),
    (
        ErrorHint::Auth,
        &[
            "accessdenied",
            "accountdeactivated",
            "apikeydeleted",
            "apikeyexpired",
            "apikeyinvalid",
            "apikeyrevoked",
            "authentication",
            "authenticationfailed",
            "expiredtoken",
            "forbidden",
            "incorrectapikey",
            "invalidapikey",
            "invalidauthentication",
            "invalidtoken",
            "missingapikey",
            "permission",
            "permissiondenied",
            "servicedisabled",
            "tokenexpired",
            "unauthenticated",
            "unauthorized",
            "unrecognizedclient",
        ],
    ),
    (
        ErrorHint::Timeout,
        &["deadlineexceeded", "gatewaytimeout", "modeltimeout", "requesttimeout", "timeout"],
    ),
    (ErrorHint::Network, &["apiconnection", "connection"]),
    (
        ErrorHint::Request,
        &[
            "integerbelowminvalue",
            "invalidfunctionparameters",
            "invalidimageurl",
            "invalidjsonschema",
            "invalidtype",
            "missingrequiredparameter",
            "previousresponsenotfound",
            "tooluse",
            "toolusefailed",
            "unknownparameter",
            "unsupportedparameter",
            "unsupportedvalue",
        ],
    ),
];

const LOOSE_CODES: &[(ErrorHint, &[&str])] = &[
    (
        ErrorHint::Request,
        &[
            "badrequest",
            "failedprecondition",
            "invalidargument",
            "invalidparameter",
            "invalidprompt",
            "invalidrequest",
            "invalidrequestbody",
            "notfound",
            "unprocessableentity",
            "validation",
        ],
    ),
    (ErrorHint::Server, &["api", "internal", "internalserver", "model", "modelstream", "server"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_in_many_ways() {
        let check = |code: &str, hint: Option<ErrorHint>| {
            assert_eq!(hint_of_code(&normalize_code(code)), hint, "{code}");
        };
        for code in ["rate_limit_error", "RateLimitError", "RATE_LIMIT", "rate-limit"] {
            check(code, Some(ErrorHint::RateLimit));
        }
        check("ThrottlingException", Some(ErrorHint::RateLimit));
        check("Throttling.RateQuota", Some(ErrorHint::RateLimit));
        check("API_KEY_INVALID", Some(ErrorHint::Auth));
        check("overloaded_error", Some(ErrorHint::Overloaded));
        check("my_rate_limit_error", None);
        check("error", None);
        check("", None);
    }

    #[test]
    fn each_code_stands_once_and_as_it_is_looked_up() {
        let mut all: Vec<&str> =
            CODES.iter().chain(LOOSE_CODES).flat_map(|(_, codes)| codes.iter().copied()).collect();
        for code in &all {
            assert_eq!(normalize_code(code), *code);
        }
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
    }
}
