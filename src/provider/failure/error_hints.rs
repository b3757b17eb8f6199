//! The failure classes of vendors' error codes and types. Phrases in texts are in `phrases.rs`; `classify.rs` decides
//! whether a class fits the status, and fills in its fields.

use hermod_actors::model::{Deadline, FailureClass};

/// The classes with fields, which `classify.rs` fills in.
pub(super) const QUOTA: FailureClass = FailureClass::QuotaExhausted { reset_at: None };
pub(super) const CONTEXT: FailureClass = FailureClass::ContextTooLong { limit: None };
pub(super) const RATE_LIMIT: FailureClass =
    FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
pub(super) const TIMEOUT: FailureClass = FailureClass::Timeout { which: Deadline::Call };

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

/// The class that a table has for a code.
pub(super) fn class_of_code(
    table: &'static [(FailureClass, &[&str])],
    plain: &str,
) -> Option<&'static FailureClass> {
    table.iter().find(|(_, codes)| codes.contains(&plain)).map(|(class, _)| class)
}

/// Unambiguous codes. Numbers mean different things for different vendors, so they have the vendor's name before them
/// (`vendor_error.rs`).
pub(super) const CODES: &[(FailureClass, &[&str])] = &[
    (
        QUOTA,
        &[
            "minimax1008",
            "zhipu1113",
            "zhipu1304",
            "zhipu1309",
            "zhipu1310",
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
        FailureClass::ContentRefused,
        &[
            "minimax1026",
            "minimax1027",
            "zhipu1300",
            "zhipu1301",
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
        CONTEXT,
        &[
            "cloudflare5021",
            "minimax1039",
            "zhipu1261",
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
        FailureClass::ModelNotFound,
        &[
            "cloudflare5007",
            "zhipu1211",
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
        RATE_LIMIT,
        &[
            "minimax1002",
            "minimax2045",
            "minimax2056",
            "zhipu1302",
            "zhipu1303",
            "zhipu1308",
            "zhipu1313",
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
        FailureClass::Overloaded,
        &[
            "zhipu1312",
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
        FailureClass::Auth,
        &[
            "minimax1004",
            "minimax2049",
            "zhipu1000",
            "zhipu1001",
            "zhipu1002",
            "zhipu1003",
            "zhipu1004",
            "zhipu1110",
            "zhipu1111",
            "zhipu1112",
            "zhipu1121",
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
        TIMEOUT,
        &["deadlineexceeded", "gatewaytimeout", "modeltimeout", "requesttimeout", "timeout", "minimax1001"],
    ),
    (FailureClass::Network, &["apiconnection", "connection"]),
    (
        FailureClass::InvalidRequest,
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

/// Codes that vendors use for many errors; a phrase in the text takes precedence.
pub(super) const LOOSE_CODES: &[(FailureClass, &[&str])] = &[
    (
        FailureClass::InvalidRequest,
        &[
            "minimax2013",
            "zhipu1210",
            "zhipu1212",
            "zhipu1213",
            "zhipu1214",
            "zhipu1215",
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
    (FailureClass::Server, &["api", "internal", "internalserver", "model", "modelstream", "server"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_in_many_ways() {
        let check = |code: &str, hint: Option<FailureClass>| {
            assert_eq!(class_of_code(CODES, &normalize_code(code)), hint.as_ref(), "{code}");
        };
        for code in ["rate_limit_error", "RateLimitError", "RATE_LIMIT", "rate-limit"] {
            check(code, Some(RATE_LIMIT));
        }
        check("ThrottlingException", Some(RATE_LIMIT));
        check("Throttling.RateQuota", Some(RATE_LIMIT));
        check("API_KEY_INVALID", Some(FailureClass::Auth));
        check("overloaded_error", Some(FailureClass::Overloaded));
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
