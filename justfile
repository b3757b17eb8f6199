# What `.ci/run` does, without the release build.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo deny --offline check bans licenses sources
    cargo test --workspace

# Everything, as on a new machine.
ci:
    .ci/run

# The README's first command.
demo:
    cargo run --release -- run --rehearse --workspace demo "Take stock of this folder and write STOCK.md"

bench:
    cargo bench
