//! The words of the rules in `rules.rs`, `counts.rs` and `statuses.rs`. `words.rs` describes the form of a term.

/// Terms without commas between them, so that they stand in paragraphs.
macro_rules! terms {
    ($($term:literal)*) => { &[$($term),*] };
}

/// Words of people who write about failures; no vendor has them in an error.
pub(super) const REMARK: &[&str] = terms! {
    "let's" "lets" "debug*" "bug" "bugs" "strange" "mystery" "investigat*" "discuss*" "refactor*" "explain"
    "i" "i'm" "here's" "let me" "can exceed" "could exceed" "may exceed" "might exceed" "when a" "when the" "a context overflow" "it failed" "errors are" "errors occur*" "errors should" "errors keep*" "error keeps"
    "is shown" "for example" "yesterday" "talked" "mentioned" "mentions" "article" "changelog" "the api returns" "handling" "overflow issues" "overflow messages" ", sure ," ", does the" ", what is" ", how do*" ", why" ", fixed" ", rename" ", handle" "a user"
    "your app"
};
/// Parts of a request other than its text. A sentence about them, and what follows it, may quote anything.
pub(super) const STRUCTURE: &[&str] = terms! {
    "schema*" "json" "property" "properties" "parameter" "parameters" "argument" "arguments" "field" "fields"
    "function" "functions" "tool" "tools" "tool_*" "string should" "regex" "array"
};
pub(super) const MEDIA: &[&str] = terms! {
    "image*" "pixel*" "dimension*" "file" "files" "pdf" "page" "pages" "audio" "video*" "attachment*" "mb"
    "megabyte*" "图片" "图像" "文件" "画像"
};
/// Transfers of files, which have limits of their own.
pub(super) const UPLOAD: &[&str] = terms! { "upload*" "multipart" "form data" "上传" };
pub(super) const MONEY: &[&str] = terms! {
    "credit" "credits" "balance" "fund" "funds" "points" "prepaid" "prepayment*" "余额" "費用" "费用" "积分"
    "残高" "잔액" "guthaben" "saldo" "solde" "crédit*" "crédito*"
};
pub(super) const USED_UP: &[&str] = terms! {
    "insufficient" "not enough" "exceed*" "exhausted" "used up" "used all" "run out" "ran out" "running out"
    "out of" "deplet*" "too low" "is low" "running low" "negative" "overdue" "no longer sufficient" "reached"
    "hit" "不足" "用尽" "耗尽" "用完" "到期" "欠" "超出" "超过" "超额" "已达" "不够" "초과" "不足しています"
    "insuf*" "aufgebraucht" "erschöpft" "agotad*" "épuisé*"
};
/// A limit of money.
pub(super) const CAP: &[&str] = terms! {
    "spend limit" "spending limit" "spending cap" "spend cap" "billing limit" "hard limit" "monthly"
    "billing period" "billing cycle" "budget"
};
pub(super) const BILL: &[&str] = terms! { "payment" "billing" "invoice*" "account" "bill" "账单" "账户" };
pub(super) const UNPAID: &[&str] = terms! {
    "overdue" "past due" "outstanding" "unpaid" "欠费" "逾期"
};
pub(super) const FUNDS: &[&str] = terms! {
    "credit" "credits" "funds" "available credits" "subscription" "paid plan"
};
pub(super) const NEEDED: &[&str] = terms! { "requires" "require" "required" "need" "needs" "needed" "lack*" };
pub(super) const NO_MONEY: &[&str] = terms! {
    "no credits" "no balance" "no funds" "no remaining credit*" "no available credit*"
    "no active subscription" "no payment method" "no resource package" "payment required" "good standing"
    "billing hard limit" "payment failed" "payment was declined" "billing disabled" "billing is disabled"
    "billing not enabled" "billing is not enabled" "billing not active" "billing is not active"
    "exceeded your current quota" "欠费" "欠費" "充值" "续费" "续订" "无可用资源包"
};
pub(super) const ALLOWANCE: &[&str] = terms! {
    "usage limit*" "usage" "allowance" "free tier" "free trial" "trial" "free allocation" "key limit"
    "free quota" "额度" "配额" "套餐" "资源包" "用量" "使用上限" "kontingent" "cuota"
};
pub(super) const SUBSCRIPTION: &[&str] = terms! {
    "subscription" "plan" "trial" "membership" "quota" "credits" "套餐" "订阅" "会员"
};
pub(super) const ENDED: &[&str] = terms! {
    "has expired" "is expired" "have expired" "expired ," "has ended" "ended ," "到期" "已过期"
};
pub(super) const QUOTA_NOUN: &[&str] = terms! { "quota" "quotas" "额度" "配额" };
/// Vendors say this of a limit per minute too.
pub(super) const EXCEEDED_QUOTA: &[&str] = terms! { ", quota exceeded" "quota exceeded ," };
pub(super) const UPGRADE: &[&str] = terms! { "upgrade*" "upgrading" "subscribe" "升级" };
pub(super) const PLAN: &[&str] = terms! {
    "plan" "plans" "account" "subscription" "tier" "pro" "plus" "max" "premium" "paid" "enterprise" "ultra"
    "access" "continue" "limits" "usage" "套餐" "会员"
};
pub(super) const BUY: &[&str] = terms! {
    "purchase more" "purchase credits" "buy more" "buy credits" "add credits" "add more credits" "add funds"
    "please top up" "top up your" "please recharge" "recharge your" "recharge the" "add a payment method"
    "update your payment method" "not included in your plan" "not available on the free tier"
    "only available on paid" "not on a paid plan" "购买"
};
pub(super) const SOFTWARE: &[&str] = terms! {
    "version" "client" "sdk" "cli" "app" "library" "latest" "websocket" "http" "tls" "protocol"
};
pub(super) const CONTENT_RULES: &[&str] = terms! {
    "policy" "policies" "safety" "moderation" "filter" "filtering" "guardrail*" "guidelines"
    "content management" "content filter*" "responsible ai" "prohibited_content" "内容安全" "安全策略" "审核"
};
pub(super) const REFUSED: &[&str] = terms! {
    "block*" "flagged" "violat*" "reject*" "refus*" "trigger*" "filtered" "prohibited" "disallowed" "requires"
    "not allowed" "against" "拦截" "违反" "拒绝" "未通过" "不通过"
};
pub(super) const CONTENT: &[&str] = terms! {
    "content" "contents" "prompt" "input" "inputs" "output" "response" "request" "message" "messages" "text"
    "completion" "data" "generation" "内容" "输入" "生成" "提示" "문장" "コンテンツ"
};
pub(super) const UNWANTED: &[&str] = terms! {
    "flagged" "inappropriate" "unsafe" "sensitive" "harmful" "high risk" "exists risk" "prohibited"
    "disallowed" "violat*" "filtered" "敏感" "违规" "違規" "不安全" "不当" "有害"
};
pub(super) const CONTENT_REFUSED: &[&str] = terms! {
    "content policy violation" "safety system" "content management policy" "content exists risk"
    "azure openai's content management"
};
pub(super) const ACCOUNT_CLOSED: &[&str] = terms! {
    "account" "organization" "organisation" "banned" "suspended" "deactivated" "账户" "账号"
};
pub(super) const INPUT: &[&str] = terms! {
    "prompt*" "input" "inputs" "context" "message" "messages" "conversation" "history" "request" "payload"
    "body" "entity" "text" "query" "chat" "transcript" "tokens" "token" "string" "document*" "输入" "提示词"
    "消息" "对话" "對話" "会话" "内容" "內容" "文本" "请求体" "上下文" "入力" "プロンプト" "メッセージ" "입력"
    "프롬프트" "eingabe" "entrada" "entrée"
};
pub(super) const TOO_LONG: &[&str] = terms! {
    "too long" "too large" "too big" "too many" "too much" "too lengthy" "overlong" "oversize*" "超长" "超長"
    "过长" "過長" "太长" "太長" "过大" "過大" "太大" "長すぎ" "너무" "zu lang" "zu groß" "demasiado larg*"
    "trop long*"
};
pub(super) const DURATION: &[&str] = terms! { "took" "takes" "time" "times" "duration" "seconds" "wait*" };
/// Sizes that an output has too.
pub(super) const INPUT_SIZE: &[&str] = terms! {
    "tokens" "token count" "token limit" "token length" "token size" "max length" "maximum length"
    "maximum allowed length" "total length" "max_model_len" "max_seq_len" "model length" "input" "prompt"
    "messages" "conversation" "request payload" "request body" "request size" "token window"
};
/// Sizes that only an input has.
pub(super) const CONTEXT_SIZE: &[&str] = terms! {
    "context window*" "context length*" "context size*" "context limit*" "context_length*" "context_window*"
    "context budget" "model's context" "prompt length" "prompt size" "prompt token*" "input length"
    "input size" "input token*" "message length" "sequence length" "text length" "conversation length"
    "max_prompt_tokens" "max_input_tokens" "max_context*" "上下文" "max_position*" "token context"
    "fenêtre de contexte" "kontext*" "contexto" "контекст*"
};
pub(super) const EXCEEDS: &[&str] = terms! {
    "exceed*" "surpass*" "overflows" "overflowed" "over the" "over its" "beyond" "longer than" "larger than"
    "greater than the" "greater than maximum" "bigger than" "more than" "higher than the" "more tokens than"
    "does not fit" "doesn't fit" "do not fit" "cannot fit" "can't fit" "not fit" "too large"
    "was reached" "must have less" "must be shorter" "must be smaller" "cannot be longer"
    "only supports" ">" "dépass*" "überschr*" "excede*" "supera*" "превыш*" "超出" "超过" "초과"
};
pub(super) const INPUT_IDEOGRAPHS: &[&str] = terms! {
    "输入" "上下文" "提示词" "长度" "長度" "文本" "内容" "內容" "消息" "对话" "對話" "token*" "prompt" "input"
    "入力" "コンテキスト" "文脈" "トークン" "입력" "토큰" "컨텍스트"
};
pub(super) const EXCEEDS_IDEOGRAPHS: &[&str] = terms! {
    "超出" "超过" "超過" "超限" "超长" "超え" "过长" "過長" "太长" "大于" "溢出" "最大限制" "最大长度" "上限"
    "초과"
};
pub(super) const SHORTEN: &[&str] = terms! {
    "reduce" "shorten" "shorter" "trim" "truncate" "compress" "decrease" "压缩" "减少" "缩短" "缩减" "精简" "短く"
};
pub(super) const LARGEST_INPUT: &[&str] = terms! {
    "maximum context*" "max context*" "maximum prompt*" "max prompt*" "maximum input*" "max input*"
    "model token limit" "maximum sequence length" "maximum model length" "range of input length"
    "context length of only"
};
pub(super) const NUMBER: &[&str] = terms! { "0*" "1*" "2*" "3*" "4*" "5*" "6*" "7*" "8*" "9*" };
/// The noun alone is what people say; a vendor ends a clause with it.
pub(super) const CONTEXT_OVERFLOW: &[&str] = terms! {
    "context overflow ," "context overflows" "context overflowed" "context window full" "context is full"
    "context exceeded" "context window exceeded" "entity too large" "payload too large" "content too large"
    "exceeds the maximum size" "上下文过长" "上下文溢出"
};
pub(super) const TOO_SMALL_WINDOW: &[&str] = terms! {
    "insufficient" "not enough" "not sufficient" "不足" "不够"
};
pub(super) const CONTEXT_NOUNS: &[&str] = terms! {
    "maximum context length" "max context length" "maximum context length exceeded" "context overflow"
};
pub(super) const OUTPUT: &[&str] = terms! {
    "max_tokens" "max_completion_tokens" "max_output_tokens" "max_new_tokens" "maxoutputtokens" "max tokens"
    "max output tokens" "output tokens" "output token" "completion tokens" "output limit" "maximum tokens you"
};
pub(super) const THINKING: &[&str] = terms! { "thinking" "reasoning" "budget_tokens" "tokens" };
pub(super) const MODEL: &[&str] = terms! {
    "model" "models" "models/*" "deployment" "engine" "endpoint or model" "模型" "モデル" "모델" "modell"
    "modelo" "modèle"
};
pub(super) const MISSING_MODEL: &[&str] = terms! {
    "not found" "does not exist" "doesn't exist" "not exist*" "do not exist" "not available"
    "no longer available" "no longer supported" "not supported" "isn't supported" "isn't available"
    "unavailable in" "deprecated" "retired" "decommissioned" "discontinued" "shut down" "been removed"
    "is invalid" "id is invalid" "is unknown" "not a valid" "not recognized" "not enabled" "not deployed"
    "not activated" "not accessible" "not open" "not permitted" "is not allowed" "not a known"
    "could not be found" "不存在" "未找到" "未开通" "已下线" "无权" "无可用渠道" "不可用" "存在しません"
    "見つかりません" "nicht gefunden" "no encontrado" "introuvable"
};
pub(super) const UNKNOWN_MODEL: &[&str] = terms! {
    "invalid model" "unknown model" "no such model" "unsupported model" "unrecognized model"
    "nonexistent model" "not a valid model" "not found the model" "not find model" "not find the model"
    "cannot find model" "not activated the model" "not enabled the model" "no endpoints found"
    "no endpoint found" "no allowed providers" "supported api model names are" "model identifier is invalid"
    "no available channel*" "model is not a" "无可用渠道" "未知模型" "无效模型" "无效的模型"
};
pub(super) const MODEL_OUTPUT: &[&str] = terms! { "output" "response" "answer" };
pub(super) const MODEL_ACCESS: &[&str] = terms! {
    "access to model" "access to the model" "access to this model" "access to the requested model" "use model"
    "use the model" "use this model" "访问该模型" "使用该模型"
};
pub(super) const DENIED: &[&str] = terms! {
    "not" "no" "don't" "doesn't" "without" "denied" "lack*" "cannot" "没有" "无权"
};
pub(super) const MODEL_NAMED: &[&str] = terms! { "model , *" };
pub(super) const RATE: &[&str] = terms! {
    "rate" "rates" "rate limit*" "rate_limit*" "ratelimit*" "request limit*" "requests limit" "requests per *"
    "tokens per *" "per minute" "per second" "per hour" "per day" "per min" "minute limit" "rpm" "tpm" "tpd"
    "rpd" "qps" "tps" "rps" "concurren*" "parallel requests" "number of requests" "frequency" "频率" "速率"
    "并发" "限流" "流量" "请求次数" "调用次数" "レート" "リクエスト"
};
pub(super) const EXCEEDS_RATE: &[&str] = terms! {
    "exceed*" "reached" "hit" "over" "too high" "too fast" "too many" "is limited" "been limited" "overrun"
    "过高" "过快" "超限" "超出" "超过" "已达" "达到" "受到限制" "触发" "多すぎ"
};
pub(super) const TOO_FAST: &[&str] = terms! {
    "too many requests" "too many concurrent*" "too many tokens" "throttl*" "slow down" "rate limited"
    "rate limiting" "too quickly" "too frequent*" "too fast" "cooling down" "rate_limit hit"
    "resource exhausted" "resource has been exhausted" "resources exhausted" "resources have been exhausted"
    "限流" "请求过多" "过于频繁" "太频繁" "频率过高" "多すぎ"
};
pub(super) const LIMIT: &[&str] = terms! {
    "limit" "limits" "usage" "quota" "allowance" "requests" "上限" "限额" "额度" "次数"
};
pub(super) const PERIOD: &[&str] = terms! {
    "daily" "weekly" "hourly" "session limit*" "5-hour" "hour limit" "per day" "per week" "today" "this week"
    "每日" "今日" "每天" "每周" "小时"
};
pub(super) const TRANSIENT: &[&str] = terms! {
    "try again" "retry*" "please wait" "wait for" "reset" "resets" "temporar*" "momentarily" "later"
    "currently" "right now" "稍后" "稍候" "重试" "重置" "しばらく"
};
pub(super) const LIMIT_REACHED: &[&str] = terms! {
    "limit reached" "limit exceeded" "limit has been reached" "limit has been exceeded" "hit your limit"
    "hit the limit" "reached your limit" "reached the limit" "reached its limit" "已达上限" "达到上限"
};
/// What a provider does to requests of any size.
pub(super) const THROTTLED: &[&str] = terms! {
    "throttl*" "too many requests" "slow down" "rate limited" "service unavailable" "temporarily unavailable" "overloaded"
};
pub(super) const OVERLOADED: &[&str] = terms! {
    "overload*" "at capacity" "over capacity" "no capacity" "insufficient capacity" "capacity constraints"
    "too busy" "is busy" "really busy" "currently busy" "server busy" "service unavailable"
    "temporarily unavailable" "service temporarily unavailable" "currently unavailable" "loading model"
    "model is loading" "still loading" "warming up" "under maintenance" "no healthy upstream"
    "no available server*" "not ready" "繁忙" "过载" "過載" "负载" "访问量过大" "拥挤" "服务不可用"
    "暂时不可用" "混雑" "過負荷" "과부하"
};
/// What there is too much of when a provider is overloaded.
pub(super) const LOAD: &[&str] = terms! { "traffic" "load" "demand" "load average" };
pub(super) const HIGH: &[&str] = terms! {
    "high" "heavy" "experiencing" "excessive" "too much" "unusual" "spikes"
};
pub(super) const CREDENTIAL: &[&str] = terms! {
    "api key" "api keys" "apikey" "api_key" "your key" "key has" "access token" "access key" "auth token"
    "bearer token" "security token" "oauth" "oauth token" "authentication token" "credential*"
    "authentication" "authorization" "signature" "session" "login" "subscription key" "x-api-key" "令牌"
    "密钥" "鉴权" "身份验证" "认证" "api鍵" "apiキー" "schlüssel"
};
pub(super) const INVALID: &[&str] = terms! {
    "invalid" "incorrect" "wrong" "expired" "missing" "not valid" "isn't valid" "no longer valid"
    "not provided" "not provide" "not supplied" "required" "revoked" "disabled" "deleted" "deactivated"
    "rejected" "failed" "fails" "failure" "not found" "malformed" "inactive" "not recognized" "must provide"
    "no" "could not parse" "could not validate" "无效" "失效" "过期" "错误" "失败" "未提供" "缺失" "非法"
    "不正确" "無効" "ungültig*"
};
/// Also a piece of text, so fewer words tell that it is a credential.
pub(super) const TOKEN: &[&str] = terms! { "token" };
pub(super) const INVALID_TOKEN: &[&str] = terms! {
    "expired" "revoked" "invalid" "no longer valid" "refresh failed" "rejected" "过期" "失效" "无效" "非法"
};
pub(super) const ACCOUNT: &[&str] = terms! {
    "account" "accounts" "organization" "organisation" "project" "workspace" "team" "user" "账户" "账号"
    "帐号" "アカウント" "konto" "cuenta"
};
pub(super) const CLOSED: &[&str] = terms! {
    "deactivated" "disabled" "suspended" "banned" "blocked" "locked" "terminated" "deleted" "restricted"
    "inactive" "not active" "violation*" "封禁" "锁定" "停用" "禁用" "冻结" "非活动" "不存在" "gesperrt"
};
pub(super) const UNAUTHORIZED: &[&str] = terms! {
    "unauthorized" "unauthorised" "unauthenticated" "forbidden" "permission denied" "access denied"
    "not authorized" "no permission" "insufficient permission*" "not have permission" "missing scope*"
    "re authenticate" "reauthenticate" "please log in" "please login" "please sign in" "log in again"
    "sign in again" "not logged in" "login required" "certification failed" "api_key*" "权限不足" "没有权限"
    "未授权"
};
pub(super) const CONNECTION: &[&str] = terms! {
    "connection" "connect" "socket" "network" "dns" "host" "tls" "ssl" "stream" "peer" "fetch" "handshake"
    "remote end" "other side" "连接" "网络"
};
pub(super) const BROKEN: &[&str] = terms! {
    "reset" "refused" "closed" "aborted" "lost" "terminated" "broken" "unreachable" "hang up" "hung up"
    "disconnected" "dropped" "prematurely" "interrupted" "failed" "断开" "中断" "重置" "失败" "alert"
};
pub(super) const NETWORK: &[&str] = terms! {
    "econn*" "enet*" "ehost*" "epipe" "enotfound" "eai_again" "esocket*" "etimedout" "err_connection*"
    "err_network*" "network error" "network_error" "connection error" "socket error" "tls error" "ssl error"
    "ssl ," "premature close" "server disconnected" "closed connection" "closed the connection"
    "ended unexpectedly" "ended before" "unexpected end of stream" "request aborted" "request was aborted"
    "operation was aborted" ", aborted ," "connectionerror*" "connectionreset*" "connectionrefused*"
    "connectionaborted*" "apiconnectionerror" "remoteprotocolerror" "serverdisconnected*" "unexpected eof"
    "broken pipe" "getaddrinfo" "name resolution" "dns error" "no route to host" "incomplete chunked read"
    "upstream connect error" "bad record mac" "certificate verify failed" ", terminated ," "und_err*"
    "disconnect/reset"
};
pub(super) const TIMED_OUT: &[&str] = terms! {
    "timed out" "timeout" "timeouts" "timeouterror" "apitimeouterror" "readtimeout*" "connecttimeout*"
    "no response" "not respond" "time out" "deadline exceeded" "took too long" "超时" "逾時" "タイムアウト"
};
pub(super) const PATH: &[&str] = terms! {
    "url" "path" "route" "endpoint" "page" "uri" "resource" "路径" "接口"
};
pub(super) const UNKNOWN_PATH: &[&str] = terms! {
    "not found" "was not found" "unknown" "invalid" "no such" "no" "不存在"
};
pub(super) const NOT_AN_API: &[&str] = terms! {
    "no route*" "cannot post" "cannot get" "method not allowed" "unknown request url" ", 404 page not found"
};
pub(super) const NOT_FOUND: &[&str] = terms! { "not found" "404 not found" "resource not found" };
pub(super) const FAULTY: &[&str] = terms! {
    "invalid" "missing" "error*" "failed" "required" "must" "unsupported" "unknown" "malformed" "expected"
    "incorrect" "too long" "too large" "too many" "exceed*" "not valid" "not permitted" "not supported" "不能"
    "错误" "有误" "非法" "缺失" "should"
};
pub(super) const BAD_REQUEST: &[&str] = terms! {
    "bad request" "invalid request*" "malformed request" "unprocessable entity" "validation error*"
    "invalid param*" "invalid argument*" "invalid format" "invalid type" "not permitted" "unsupported value"
    "requires reasoning" "reasoning is mandatory" "non empty" "must alternate" "could not be verified"
    "could not be decrypted" "error parsing grammar" "body is invalid" "参数有误" "参数错误" "参数非法"
    "参数不合法" "参数无效" "请求无效"
};
pub(super) const BROKEN_SERVER: &[&str] = terms! {
    "internal server error" "internal error" "bad gateway" "server error"
};
/// What a count is of.
pub(super) const COUNTED: &[&str] = terms! {
    "token" "char" "length" "input" "prompt" "message" "context" "sequence" ">" "字符" "长度"
};
pub(super) const COUNTED_INPUT: &[&str] = terms! {
    "input*" "prompt*" "context*" "messages" "conversation" "total" "sequence length" "输入" "上下文" "长度"
};
pub(super) const COUNTED_TOKENS: &[&str] = terms! { "token*" "max_model_len" "characters" };
/// Words after which the size of a request stands.
pub(super) const SIZE_BEFORE: &[&str] = terms! {
    "requested" "got" "given" "received" "has" "have" "contains" "contain" "resulted" "count" "current"
    "actual" "provided" "sent"
};
/// Words after which a limit stands.
pub(super) const LIMIT_BEFORE: &[&str] = terms! {
    "limit" "limited" "most" "allowed" "only" "supports" "window" "than" "within" ">" "<=" "over" "限制"
    "最大" "不能超过"
};
pub(super) const EXCEEDS_OUTPUT: &[&str] = terms! {
    "exceed*" "over the" "greater than the" "larger than" "too large" "too high" "too big" "at most"
    "not exceed" "cannot be greater" "must be in range" "in the range" "must be between" "out of range" "超过"
    "超出" "范围"
};
pub(super) const TOO_SMALL: &[&str] = terms! {
    "minimum" "too small" "must be greater" "must be larger" "below" ">=" "at least" "greater than or"
};
pub(super) const CLAUSE_BEGIN: &[&str] = terms! { "," };
pub(super) const INPUT_NOUN: &[&str] = terms! { "input*" "prompt*" "messages" "context*" };
pub(super) const EXCEEDS_LIMIT: &[&str] = terms! {
    ">" "exceed*" "over the" "greater than" "larger than" "too large" "too high" "too big" "cannot be greater"
};
