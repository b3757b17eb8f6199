//! What the benchmarks of the whole runtime share.
#![allow(dead_code)] // each benchmark uses a part of it
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

pub(crate) mod endpoint;
pub(crate) mod floor;
pub(crate) mod journal;
pub(crate) mod load;
pub(crate) mod served;
pub(crate) mod usage;

/// The number behind `--name` on the command line.
pub(crate) fn option(name: &str, default: usize) -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(default, |text| text.parse().expect("a number behind each option"))
}

/// The numbers behind `--name` on the command line, with commas between them.
pub(crate) fn options(name: &str, default: &[usize]) -> Vec<usize> {
    let text = std::env::args().skip_while(|argument| argument != name).nth(1);
    let number = |text: &str| text.parse().expect("numbers behind each option, with commas between them");
    text.map_or_else(|| default.to_vec(), |text| text.split(',').map(number).collect())
}

/// Whether this is `cargo bench`; otherwise it is enough to see that it works.
pub(crate) fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Whether the name contains what stands behind `--only`; everything is wanted without it.
pub(crate) fn is_wanted(name: &str) -> bool {
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1);
    only.is_none_or(|only| name.contains(&only))
}
