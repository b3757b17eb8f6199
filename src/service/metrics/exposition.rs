//! The text of a scrape: series with their samples, as OpenMetrics or as Prometheus's older text format.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text},
    metrics::{MetricType, histogram::Histogram},
    registry::Registry,
};

/// The form of a scrape's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextFormat {
    OpenMetrics,
    /// For clients that read only the format before it.
    Prometheus,
}

impl TextFormat {
    /// The format for a client with this header `Accept`: the older one only if it asks for nothing else.
    pub(super) fn accepted(accept: &str) -> Self {
        let is_old = accept.contains("text/plain") && !accept.contains("application/openmetrics-text");
        if is_old { Self::Prometheus } else { Self::OpenMetrics }
    }

    /// The media type.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SampleValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for SampleValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for SampleValue {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// Labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// The samples of one name.
#[derive(Debug)]
struct Series {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Labels, SampleValue)>,
}

/// The series of a scrape.
#[derive(Debug, Default)]
pub(super) struct Exposition(Vec<Series>);

impl Exposition {
    /// A total that only grows; the text adds `_total` to its name.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> SeriesSamples<'_> {
        self.series(name, help, MetricType::Counter)
    }

    /// A value of the moment.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> SeriesSamples<'_> {
        self.series(name, help, MetricType::Gauge)
    }

    fn series(&mut self, name: &'static str, help: &'static str, kind: MetricType) -> SeriesSamples<'_> {
        self.0.push(Series { name, help, kind, samples: Vec::new() });
        SeriesSamples(self.0.last_mut().map(|series| &mut series.samples))
    }

    /// The text of all series and of a histogram.
    pub(super) fn text(
        self,
        format: TextFormat,
        (name, help, histogram): (&'static str, &'static str, Histogram),
    ) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register(name, help.trim_end_matches('.'), histogram);
        registry.register_collector(Box::new(self));
        let mut encoded = String::new();
        match format {
            TextFormat::OpenMetrics => text::encode(&mut encoded, &registry)?,
            TextFormat::Prometheus => prometheus_text::encode(&mut encoded, &registry)?,
        }
        Ok(encoded)
    }
}

/// Takes the samples of a series.
#[derive(Debug)]
pub(super) struct SeriesSamples<'s>(Option<&'s mut Vec<(Labels, SampleValue)>>);

impl SeriesSamples<'_> {
    /// The only sample of the series.
    pub(super) fn is(self, value: impl Into<SampleValue>) {
        self.sample([], value);
    }

    /// Adds a sample with labels.
    pub(super) fn sample<const N: usize>(
        mut self,
        labels: [(&'static str, &str); N],
        value: impl Into<SampleValue>,
    ) -> Self {
        if let Some(samples) = &mut self.0 {
            let labels = labels.map(|(name, value)| (name, value.to_owned()));
            samples.push((labels.into(), value.into()));
        }
        self
    }

    /// Adds a sample for each entry of a map, whose key is the label.
    pub(super) fn by<K: AsRef<str>, V: Into<SampleValue>>(
        self,
        label: &'static str,
        samples: impl IntoIterator<Item = (K, V)>,
    ) {
        samples.into_iter().fold(self, |series, (key, value)| series.sample([(label, key.as_ref())], value));
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for series in &self.0 {
            let mut metric = encoder.encode_descriptor(series.name, series.help, None, series.kind)?;
            for (labels, value) in &series.samples {
                if labels.is_empty() {
                    encode_value(&mut metric, series.kind, *value)?;
                } else {
                    encode_value(&mut metric.encode_family(labels)?, series.kind, *value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(to: &mut MetricEncoder<'_>, kind: MetricType, value: SampleValue) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, SampleValue::Whole(value)) => {
            to.encode_counter::<NoLabelSet, u64, u64>(&value, None)
        }
        (MetricType::Counter, SampleValue::Real(value)) => {
            to.encode_counter::<NoLabelSet, f64, u64>(&value, None)
        }
        (_, SampleValue::Whole(value)) => to.encode_gauge(&value),
        (_, SampleValue::Real(value)) => to.encode_gauge(&value),
    }
}
