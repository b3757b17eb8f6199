//! Shrinks a sequence of steps that breaks a rule.

/// Few steps, in their order, for which `is_so` still holds: halves are left out, then quarters, down to single steps.
pub(super) fn shrink(steps: &[u64], mut is_so: impl FnMut(&[u64]) -> bool) -> Vec<u64> {
    let mut left = steps.to_vec();
    let mut size = left.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut has_shrunk) = (0, false);
        while at < left.len() {
            let end = (at + size).min(left.len());
            let fewer = [&left[..at], &left[end..]].concat();
            if is_so(&fewer) {
                (left, has_shrunk) = (fewer, true);
            } else {
                at = end;
            }
        }
        if !has_shrunk || size > 1 {
            size /= 2;
        }
    }
    left
}
