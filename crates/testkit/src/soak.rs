//! How long a test goes on: seconds in the ordinary suite, as long as asked for in `cargo xtask
//! soak`.

/// Name of the variable that makes soak tests long.
pub const SOAK: &str = "GOSPECT_SOAK";

/// `quick` rounds, or as many as [`SOAK`] says.
///
/// # Panics
/// When the variable is no number.
#[must_use]
pub fn soak_rounds(quick: u32) -> u32 {
    match std::env::var(SOAK) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SOAK}={text} is no number")),
        Err(_) => quick,
    }
}
