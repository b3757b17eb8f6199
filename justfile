# What `.ci/run` does, without the release build.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    cargo deny --offline check bans licenses sources
    cargo test --workspace --all-features

# Everything, as on a new machine.
ci:
    .ci/run

# The README's first command.
demo:
    cargo run -- run --rehearse --workspace demo "Take stock of this folder and write STOCK.md"

bench:
    cargo bench

# Seeds of the simulation: a number, or a range as 2000..50000.
simulation seeds="50000":
    HERMOD_SEEDS={{seeds}} cargo test -p hermod-actors --release --test runtime simulation:: -- --nocapture

# Seeds of the simulation of schedules.
schedules seeds="10000":
    HERMOD_SEEDS={{seeds}} cargo test -p hermod-actors --release --test schedules -- --nocapture

# Seeds of the simulation until each mutation is found.
mutations seeds="50000":
    HERMOD_SEEDS={{seeds}} cargo test -p hermod-actors --release --test runtime mutations_found:: -- --nocapture

# Sequences of inputs through the core: a number, or a range as 2000..50000.
core sequences="1000000":
    HERMOD_SEQUENCES={{sequences}} cargo test -p hermod-core --release --lib fuzz -- --nocapture

# Power cuts at any operation of the disk, under the store and under runs.
power cuts="2000":
    HERMOD_CUTS={{cuts}} cargo test --release --lib power -- --nocapture

# Damage to the files of a store.
damage damages="2000":
    HERMOD_DAMAGES={{damages}} cargo test --release --lib damage -- --nocapture

# Instants at which a small disk is full, and all writes of a store.
full-disk rounds="100":
    HERMOD_FULL_DISK_ROUNDS={{rounds}} cargo test --release --lib full_disk
    HERMOD_FULL_DISK_ROUNDS={{rounds}} cargo test --release --test store full_disk:: -- --nocapture

# Seconds for which each tool is called with damaged arguments.
fuzz-tools seconds="1800":
    HERMOD_FUZZ_SECONDS={{seconds}} cargo test --release --test process tools::fuzz:: -- --nocapture

# Shows a promise on a release build: one of the scripts in drills/, by its name, with its numbers.
drill name *args:
    cargo build --release
    python3 drills/{{name}}.py target/release/hermod {{args}}
