//! Makes the profile of a model (window, price, thinking) from what is known by its name: the program's table
//! (`config/models.toml`), overridden by the user's. No I/O; the lists of models that providers send are read in
//! `provider/model_list`.

use hermod_actors::model::{ModelDeadlines, ModelProfile, ModelRef, Price};

use crate::{
    config::{Config, ModelSection, PositiveDuration, PriceSection},
    provider::CacheTtl,
};

/// How precisely the name of an entry matches a model; a greater value is a better match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    /// The model's name begins with the name before the `*`.
    Start,
    /// The model is a version of the name, marked by a date or as the latest.
    Version,
    /// The names are equal.
    Whole,
}

/// The profile of a model. For each key the best-matching entry that sets it counts, and the user's table precedes
/// the program's.
pub fn profile(config: &Config, model: &ModelRef) -> ModelProfile {
    let mut merged = ModelSection::default();
    for table in [&config.known_models, &config.models] {
        let mut matches: Vec<_> =
            table.iter().filter_map(|(name, section)| Some((match_name(name, model)?, section))).collect();
        matches.sort_by_key(|(fit, _)| *fit);
        matches.into_iter().for_each(|(_, section)| overlay(&mut merged, section));
    }
    let cache = config.cache_of(model.provider());
    ModelProfile {
        window: merged.window.map(|count| count.0.into()),
        max_output: merged.max_output.map(|count| count.0.into()),
        thinking_style: merged.thinking.map(|style| style.0),
        levels: merged.thinking_levels.map(|levels| levels.0),
        default_level: merged.thinking_level.and_then(|level| level.0),
        images: merged.images.map(|flag| flag.0),
        price: merged.price.and_then(|price| price_of(&price, cache)),
        deadlines: ModelDeadlines {
            first_event_ms: merged.first_event.map(PositiveDuration::millis),
            gap_ms: merged.gap.map(PositiveDuration::millis),
            call_ms: merged.call.map(PositiveDuration::millis),
        },
        density: None,
        listed_limits: None,
    }
}

fn overlay(merged: &mut ModelSection, section: &ModelSection) {
    merged.window = section.window.or(merged.window);
    merged.max_output = section.max_output.or(merged.max_output);
    merged.thinking = section.thinking.or(merged.thinking);
    merged.thinking_levels = section.thinking_levels.or(merged.thinking_levels);
    merged.thinking_level = section.thinking_level.or(merged.thinking_level);
    merged.images = section.images.or(merged.images);
    merged.first_event = section.first_event.or(merged.first_event);
    merged.gap = section.gap.or(merged.gap);
    merged.call = section.call.or(merged.call);
    merged.price = section.price.or(merged.price);
}

/// The price with this cache duration; `None` unless the prices of input and output are both known.
fn price_of(price: &PriceSection, cache: CacheTtl) -> Option<Price> {
    let (input, output) = (price.input?.0, price.output?.0);
    let cache_write = match cache {
        CacheTtl::Off | CacheTtl::Short => price.cache_write,
        CacheTtl::Long => price.cache_write_1h.or(price.cache_write),
    };
    Some(Price {
        input,
        output,
        cache_read: price.cache_read.map_or(input, |price| price.0),
        cache_write: cache_write.map_or(input, |price| price.0),
        up_to: price.up_to.map(|count| count.0.into()),
    })
}

/// How precisely `name` matches, and the length of `name`. `name` may be the model alone, with its vendor, or with
/// the provider too.
fn match_name(name: &str, model: &ModelRef) -> Option<(NameMatch, usize)> {
    let name = normalize(name);
    let whole = normalize(&model.to_string());
    // The names without the provider, then without each part of the path before the model's own name.
    let suffixes = whole.match_indices('/').map(|(at, _)| &whole[at + 1..]);
    let names = std::iter::once(whole.as_str()).chain(suffixes);
    let fits = names.filter_map(|whole| {
        let fit = match (whole.strip_prefix(name.trim_end_matches('*')), name.ends_with('*')) {
            (Some(_), true) => NameMatch::Start,
            (Some(""), false) => NameMatch::Whole,
            (Some(rest), false) if is_version(rest) => NameMatch::Version,
            (Some(_) | None, _) => return None,
        };
        Some((fit, name.len()))
    });
    fits.max()
}

/// Normalizes spelling: some vendors write 4.5 where others write 4-5.
fn normalize(name: &str) -> String {
    name.to_lowercase().replace('.', "-")
}

/// True for `-20250929`, `-2025-09-29`, `@20250929` and `-latest`.
fn is_version(rest: &str) -> bool {
    let Some(version) = rest.strip_prefix(['-', '@']) else { return false };
    let digits = version.bytes().filter(u8::is_ascii_digit).count();
    let dashes = version.bytes().filter(|byte| *byte == b'-').count();
    version == "latest" || (digits == 8 && version.len() == digits + dashes && (dashes == 0 || dashes == 2))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hermod_actors::model::{ThinkingLevel, ThinkingStyle};

    use super::*;
    use crate::config::ConfigFile;

    fn config(text: &str) -> Config {
        let file = ConfigFile { path: "hermod.toml".into(), text: text.to_owned() };
        Config::load(&[file], &BTreeMap::new()).unwrap()
    }

    fn of(text: &str, model: &str) -> ModelProfile {
        profile(&config(text), &model.parse().unwrap())
    }

    #[test]
    fn a_name_fits_the_model_its_versions_and_the_paths_that_lead_to_it() {
        let check = |name: &str, model: &str, expect: Option<NameMatch>| {
            assert_eq!(
                match_name(name, &model.parse().unwrap()).map(|(fit, _)| fit),
                expect,
                "{name} {model}"
            );
        };
        let (whole, version, start) =
            (Some(NameMatch::Whole), Some(NameMatch::Version), Some(NameMatch::Start));
        check("m-1", "p/m-1", whole);
        check("m-1", "openrouter/vendor/M.1", whole);
        check("vendor/m-1", "openrouter/vendor/m.1", whole);
        check("p/m-1", "p/m-1", whole);
        check("q/m-1", "p/m-1", None);
        check("m-1", "p/m-1-20250929", version);
        check("m-1", "p/m-1-2025-09-29", version);
        check("m-1", "p/m-1@20250929", version);
        check("m-1", "p/m-1-latest", version);
        for other in ["p/m-1-mini", "p/m-1:free", "p/m-12", "p/m-1-2025", "p/x-m-1", "p/m", "p/m-1-2025092-9"]
        {
            check("m-1", other, None);
        }
        check("m-*", "p/m-1-mini", start);
        check("p/*", "p/vendor/m", start);
        check("vendor/*", "p/vendor/m", start);
    }

    #[test]
    fn the_user_stands_over_the_program_and_the_closer_name_over_the_wider() {
        let user = "
            [models.\"acme/*\"]
            window = 1
            images = false
            first_event = \"5s\"
            gap = \"50ms\"
            [models.m]
            window = 2
            max_output = 7
            call = \"2h\"
            thinking = \"effort\"
            [models.\"acme/m\"]
            window = 3
            first_event = \"9ms\"
            thinking_levels = [\"high\", \"low\"]
            thinking_level = \"low\"
            [models.\"claude-sonnet-4-5\"]
            max_output = 5
        ";
        let expect = ModelProfile {
            window: Some(3),
            max_output: Some(7),
            thinking_style: Some(ThinkingStyle::Effort),
            levels: Some([ThinkingLevel::Low, ThinkingLevel::High].into_iter().collect()),
            default_level: Some(ThinkingLevel::Low),
            images: Some(false),
            price: None,
            deadlines: ModelDeadlines { first_event_ms: Some(9), gap_ms: Some(50), call_ms: Some(7_200_000) },
            density: None,
            listed_limits: None,
        };
        assert_eq!(of(user, "acme/m"), expect);
        assert_eq!(of(user, "other/m").window, Some(2));
        assert_eq!(of(user, "acme/other").window, Some(1));
        assert_eq!(of("", "acme/m"), ModelProfile::default());
        let (own, table) = (of(user, "anthropic/claude-sonnet-4-5"), of("", "anthropic/claude-sonnet-4-5"));
        assert_eq!((own.max_output, own.window, own.price), (Some(5), table.window, table.price));
    }

    #[test]
    fn a_price_is_taken_as_a_whole_and_knows_how_long_is_cached() {
        let sonnet = "anthropic/claude-sonnet-4-5-20250929";
        let price = |text: &str| of(text, sonnet).price.unwrap();
        let short = Price { input: 3_000, output: 15_000, cache_read: 300, cache_write: 3_750, up_to: None };
        assert_eq!(price(""), short);
        assert_eq!(price("[providers.anthropic]\ncache = \"1h\""), Price { cache_write: 6_000, ..short });
        assert_eq!(price("[provider_defaults]\ncache = \"1h\""), Price { cache_write: 6_000, ..short });
        let own = "[models.\"claude-sonnet-4-5\"]\nprice = { input = 1.5, output = 2, up_to = 9 }";
        let expect =
            Price { input: 1_500, output: 2_000, cache_read: 1_500, cache_write: 1_500, up_to: Some(9) };
        assert_eq!(price(own), expect);
    }

    #[test]
    fn the_table_says_nothing_twice_and_nothing_that_cannot_be() {
        let config = config("");
        assert!(config.known_models.len() > 40);
        for (name, section) in &config.known_models {
            let model = ModelRef::new("p", name.as_str()).unwrap();
            let known = config.known_models.keys();
            assert_eq!(known.max_by_key(|other| match_name(other, &model)), Some(name));
            // A version has a section of its own only if its content differs.
            for (other, wider) in &config.known_models {
                let is_other = other != name && match_name(other, &model).is_some();
                assert!(!is_other || format!("{wider:?}") != format!("{section:?}"), "{name}: {other}");
            }
            assert!(section.window.is_some(), "{name}");
            let (window, output) = (section.window.unwrap(), section.max_output);
            assert!(output.is_none_or(|output| output.0 <= window.0), "{name}");
            if let Some(price) = &section.price {
                let price = price_of(price, CacheTtl::Short).expect(name);
                assert!(price.cache_read <= price.input && price.input <= price.output, "{name}");
                assert!(price.cache_write >= price.input && price.cache_write <= 2 * price.input, "{name}");
            }
        }
    }
}
