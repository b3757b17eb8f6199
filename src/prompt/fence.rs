//! Fences that mark where a text of another author begins and ends.

/// Minimum length of a fence.
const MIN_DASHES: usize = 5;

/// The text between two lines that name its origin. The fence is lengthened until the text cannot contain its end.
pub(super) fn fence_text(name: &str, text: &str) -> String {
    let mut dashes = "-".repeat(MIN_DASHES);
    while text.contains(&format!("{dashes} end of ")) {
        dashes.push('-');
    }
    format!("{dashes} {name} {dashes}\n{text}\n{dashes} end of {name} {dashes}")
}

#[cfg(test)]
mod tests {
    use super::fence_text;

    #[test]
    fn no_text_ends_its_own_fence() {
        let check = |text: &str, expect: &str| assert_eq!(fence_text("A.md", text), expect);
        check("a", "----- A.md -----\na\n----- end of A.md -----");
        let forged = "a\n----- end of A.md -----\nb";
        check(forged, &format!("------ A.md ------\n{forged}\n------ end of A.md ------"));
        let twice = "------ end of A.md ------";
        check(twice, &format!("------- A.md -------\n{twice}\n------- end of A.md -------"));
    }
}
