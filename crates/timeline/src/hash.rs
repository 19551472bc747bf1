//! A fast hash for small keys. Seeded at random, since a hostile target chooses the keys.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers of one random seed.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash {
    seed: u64,
    factor: u64,
}

impl Default for KeyHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self { seed: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { state: self.seed, factor: self.factor }
    }
}

/// Multiplies by a secret and folds the halves of the product together, word by word.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    state: u64,
    factor: u64,
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        // A word that cancels the state must not erase what came before it for good.
        self.state = (product as u64) ^ ((product >> 64) as u64) ^ self.factor.rotate_left(32);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}
