//! Types that neither debug information nor a descriptor describes, because a person or a table
//! put them together.

use crate::types::{TypeId, TypeInfo};
use std::sync::{Arc, Mutex, PoisonError};

/// Set in the ids of such types: between the places in a file and [`TypeId::of_descriptor`].
const MADE: u64 = 1 << 62;

/// Types kept; further ones are all the last.
const MAX_MADE: usize = 1 << 16;

/// The types that were made for one executable.
#[derive(Debug, Default)]
pub(crate) struct MadeTypes(Mutex<Vec<Arc<TypeInfo>>>);

impl MadeTypes {
    /// The id of a type: the one that an equal type got before.
    pub(crate) fn make(&self, ty: impl Fn(TypeId) -> TypeInfo) -> TypeId {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|known| ***known == ty(known.id));
        if let Some(known) = known {
            return known.id;
        }
        let next = TypeId(MADE | all.len().min(MAX_MADE) as u64);
        if all.len() < MAX_MADE {
            all.push(Arc::new(ty(next)));
        }
        next
    }

    /// The type of an id that [`Self::make`] gave.
    pub(crate) fn get(&self, id: TypeId) -> Option<Arc<TypeInfo>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::try_from(id.0 & !MADE).ok()?).cloned()
    }
}

impl TypeId {
    /// Whether the type is one that was made.
    pub(crate) fn is_made(self) -> bool {
        self.descriptor().is_none() && self.0 & MADE != 0
    }
}
