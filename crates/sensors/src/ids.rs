//! Ids of traces and spans.

/// Gives ids that follow from a seed; with another seed they are others.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    state: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// SplitMix64: every state once, well mixed.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Not 0, which is no span.
    pub(crate) fn span(&mut self) -> u64 {
        self.next().max(1)
    }

    /// Not 0, which is no trace.
    pub(crate) fn trace(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.span())
    }
}
