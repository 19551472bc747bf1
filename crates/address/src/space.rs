//! One newtype per address space.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! address_space {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `delta` bytes further on; wraps, as the machine does.
            pub const fn add(self, delta: u64) -> Self {
                Self(self.0.wrapping_add(delta))
            }

            /// Bytes from `origin` to `self`; `None` when `self` lies before it.
            pub const fn since(self, origin: Self) -> Option<u64> {
                self.0.checked_sub(origin.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address_space! {
    /// Actual virtual memory address: where a byte lies in a running process.
    Avma
}
address_space! {
    /// Stated virtual memory address: where the executable's program headers put a byte.
    Svma
}
address_space! {
    /// Offset of a byte in the executable file, in bytes from its start.
    FileOffset
}

/// What must be added to an [`Svma`] to get the [`Avma`] in one process.
///
/// Zero for a non-PIE executable. For PIE it is the start of the first mapping
/// minus the first PT_LOAD's `p_vaddr`, which internally linked Go PIE does not
/// put at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bias(pub u64);

impl Bias {
    /// Where `svma` lies in the process this bias belongs to.
    pub const fn to_avma(self, svma: Svma) -> Avma {
        Avma(svma.0.wrapping_add(self.0))
    }

    /// The stated address of `avma` in the process this bias belongs to.
    pub const fn to_svma(self, avma: Avma) -> Svma {
        Svma(avma.0.wrapping_sub(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_goes_both_ways_and_wraps() {
        let bias = Bias(0x5555_5515_4000);
        let svma = Svma(0x40_0000);
        assert_eq!(bias.to_avma(svma), Avma(0x5555_5555_4000));
        assert_eq!(bias.to_svma(bias.to_avma(svma)), svma);
        let down = Bias(0u64.wrapping_sub(0x1000));
        assert_eq!(down.to_avma(svma), Avma(0x3f_f000));
    }
}
