//! h
/// x
pub fn refused(_c: &str) -> Option<&'static str> {
    None
}
