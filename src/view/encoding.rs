//! The JSON of times, money and outcomes in views. Each module is for `#[serde(with = "…")]`; two functions convert
//! dollars elsewhere.

pub(super) use hermod_actors::model::{optional_rfc3339_time as optional_time, rfc3339_time as time};
use serde_json::{Value, json};

/// Nano-dollars in a dollar.
const NANO_USD_PER_USD: f64 = 1e9;

/// Nano-dollars as dollars; exact to the nano-dollar up to four million dollars.
#[allow(clippy::cast_precision_loss)]
pub(super) fn to_dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / NANO_USD_PER_USD
}

/// Dollars as nano-dollars; a negative amount is 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the cast saturates
pub(super) fn to_nano_dollars(dollars: f64) -> u64 {
    (dollars * NANO_USD_PER_USD).round() as u64
}

/// Converts the nano-dollars of stored values to dollars: `usd` of limits and accounts, and the numbers of a refusal
/// whose `dimension` is `usd`.
pub(super) fn in_dollars(value: Value) -> Value {
    convert_money(value, false, &|nano_usd| nano_usd.as_u64().map(|nano_usd| json!(to_dollars(nano_usd))))
}

/// The inverse of [`in_dollars`].
fn in_nano_dollars(value: Value) -> Value {
    convert_money(value, false, &|dollars| dollars.as_f64().map(|dollars| json!(to_nano_dollars(dollars))))
}

/// Replaces each amount of money by what `convert` makes of it; `None` keeps it. All numbers in `value` are money if
/// `is_money`.
fn convert_money(mut value: Value, is_money: bool, convert: &dyn Fn(&Value) -> Option<Value>) -> Value {
    const AMOUNTS: [&str; 4] = ["limit", "spent", "reserved", "needed"];
    if let Value::Object(object) = &mut value {
        let is_of_usd = object.get("dimension").is_some_and(|dimension| dimension == "usd");
        for (name, field) in object.iter_mut() {
            let is_amount = name == "usd" || (is_of_usd && AMOUNTS.contains(&name.as_str()));
            *field = convert_money(field.take(), is_money || is_amount, convert);
        }
        return value;
    }
    let converted = if is_money { convert(&value) } else { None };
    converted.unwrap_or(value)
}

/// Nano-dollars as a number of dollars, or `null`.
pub(super) mod dollars {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // the signature that serde calls
    pub(crate) fn serialize<S: Serializer>(nano_usd: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        nano_usd.map(super::to_dollars).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::deserialize(from)?.map(super::to_nano_dollars))
    }
}

/// Nano-dollars as a number of dollars.
pub(super) mod dollars_known {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Ok(super::to_nano_dollars(f64::deserialize(from)?))
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
    pub(crate) fn serialize<S: Serializer>(nano_usd: &u64, to: S) -> Result<S::Ok, S::Error> {
        super::to_dollars(*nano_usd).serialize(to)
    }
}

/// A stored value, with its money in dollars.
pub(super) mod money {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned, ser};
    use serde_json::Value;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(value).map_err(ser::Error::custom)?;
        super::in_dollars(value).serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let value = super::in_nano_dollars(Value::deserialize(from)?);
        serde_json::from_value(value).map_err(de::Error::custom)
    }
}

/// For a flattened field: `outcome`, `cause` and the fields of the cause; the first two are `null` without an outcome.
pub(super) mod outcome {
    use hermod_actors::model::OutcomeDetail;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
    use serde_json::{Map, Value};

    #[allow(clippy::ref_option)] // the signature that serde calls
    pub(crate) fn serialize<S: Serializer>(ended: &Option<OutcomeDetail>, to: S) -> Result<S::Ok, S::Error> {
        let mut object = Map::new();
        object.insert("outcome".into(), Value::Null);
        object.insert("cause".into(), Value::Null);
        if let Some(ended) = ended {
            let ended = serde_json::to_value(ended).map_err(ser::Error::custom)?;
            if let Value::Object(fields) = super::in_dollars(ended) {
                object.extend(fields);
            }
        }
        object.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<OutcomeDetail>, D::Error> {
        let mut object = Map::deserialize(from)?;
        if object.get("outcome").is_none_or(Value::is_null) {
            return Ok(None);
        }
        if object.get("cause").is_some_and(Value::is_null) {
            object.remove("cause");
        }
        let value = super::in_nano_dollars(Value::Object(object));
        serde_json::from_value(value).map(Some).map_err(de::Error::custom)
    }
}

/// Leaves out a flag that is not set.
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
pub(super) const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_as_it_was_written() {
        for nano_usd in [0, 1, 45_001, 1_234_500_000, 4_000_000_123_456_789] {
            assert_eq!(to_nano_dollars(to_dollars(nano_usd)), nano_usd);
        }
        assert_eq!(to_nano_dollars(to_dollars(u64::MAX)), u64::MAX);
        let check = |nano_usd, expect: &str| assert_eq!(json!(to_dollars(nano_usd)).to_string(), expect);
        check(0, "0.0");
        check(1, "1e-9");
        check(45_001, "0.000045001");
        check(4_000_000_123_456_789, "4000000.123456789");
    }

    #[test]
    fn only_money_is_converted() {
        let check = |stored: Value, expect: Value| {
            assert_eq!(in_dollars(stored.clone()), expect);
            assert_eq!(in_nano_dollars(expect), stored);
        };
        check(json!({ "tokens": 5, "usd": 2_500_000_000_u64 }), json!({ "tokens": 5, "usd": 2.5 }));
        check(
            json!({ "limits": { "budget": { "usd": 1 } } }),
            json!({ "limits": { "budget": { "usd": 1e-9 } } }),
        );
        let refusal =
            |dimension: &str, of: Value| json!({ "dimension": dimension, "limit": of, "spent": of });
        check(refusal("usd", json!(500_000_000)), refusal("usd", json!(0.5)));
        check(refusal("tokens", json!(7)), refusal("tokens", json!(7)));
    }
}
