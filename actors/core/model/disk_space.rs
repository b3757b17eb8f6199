//! Shortage of disk space, and the text form of byte sizes.

use std::fmt;

/// The free disk space is below the reserve, so no new run is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} has {} free, and {} are kept for runs that were accepted: make room there, or set a smaller store.reserve",
    ByteSize(*free),
    ByteSize(*reserve)
)]
pub struct LowDiskSpace {
    /// The folder whose file system is short of space.
    pub path: String,
    /// Free bytes.
    pub free: u64,
    /// Bytes reserved for the records of accepted runs.
    pub reserve: u64,
}

/// A number of bytes, displayed in binary units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match UNITS.into_iter().find(|(_, bits)| self.0 >> bits > 0) {
            Some((unit, bits)) => {
                // Rounded down, so that an insufficient size never reads as sufficient.
                let tenths = (u128::from(self.0) * 10) >> bits;
                write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down() {
        let check = |bytes, expect: &str| assert_eq!(ByteSize(bytes).to_string(), expect);
        check(0, "0 bytes");
        check(1_023, "1023 bytes");
        check(1_024, "1.0 KiB");
        check((64 << 20) - 1, "63.9 MiB");
        check(64 << 20, "64.0 MiB");
        check(u64::MAX, "16777215.9 TiB");
    }

    #[test]
    fn a_shortage_names_place_amounts_and_remedy() {
        let shortage = LowDiskSpace { path: "/state".into(), free: 3 << 20, reserve: 64 << 20 };
        let expect = "/state has 3.0 MiB free, and 64.0 MiB are kept for runs that were accepted: make room there, or set \
                      a smaller store.reserve";
        assert_eq!(shortage.to_string(), expect);
    }
}
