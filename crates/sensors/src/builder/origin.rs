//! Which goroutines work for which span.

use super::SpanBuilder;
use crate::catalog::Field;
use crate::evidence::Evidence;
use crate::fields::Values;
use crate::goroutine::{Ancestry, Key};

impl SpanBuilder {
    /// Tells that a goroutine made another one.
    pub fn created(&mut self, pid: u32, creator: u64, goid: u64) {
        let own = self.innermost((pid, creator));
        let is_shared = !self.sees_hand_overs;
        let own = own.map(|origin| Ancestry { origin, is_direct: true, is_shared });
        let inherited = || {
            let ancestry = self.origins.get((pid, creator))?;
            Some(Ancestry { is_direct: false, ..ancestry })
        };
        if let Some(ancestry) = own.or_else(inherited) {
            self.origins.insert((pid, goid), ancestry, self.options.origins);
        }
    }

    /// Tells that a goroutine (`None`: a timer) handed something to another one over a channel; whether the
    /// giver is one that a library made for its own work is asked when it matters.
    ///
    /// A worker that was made in a request and gets its work from others does not work for that request alone.
    pub fn handed(
        &mut self,
        pid: u32,
        from: Option<u64>,
        to: u64,
        is_of_library: &dyn Fn() -> bool,
    ) {
        let Some(from) = from.map(|goid| (pid, goid)) else { return };
        let to = (pid, to);
        let Some(Ancestry { origin, is_shared: false, .. }) = self.origins.get(to) else { return };
        // What it gets while it asks somebody is that one's answer.
        if self.innermost(to).is_some() {
            return;
        }
        let giver = match self.innermost(from) {
            Some(giver) => Some(giver.tree),
            None if is_of_library() => return,
            None => self.sure_origin(from).map(|ancestry| ancestry.origin.tree),
        };
        if giver != Some(origin.tree) {
            self.origins.share(to);
        }
    }

    /// The span that a goroutine was made in, while it is open and the goroutine works for nobody else.
    pub(super) fn sure_origin(&self, key: Key) -> Option<Ancestry> {
        let is_sure = |ancestry: &Ancestry| {
            !ancestry.is_shared && self.alive.contains_key(&ancestry.origin.context.span)
        };
        self.origins.get(key).filter(is_sure)
    }

    /// What the process itself knows of where a goroutine's next span belongs.
    pub(super) fn inside(&self, key: Key, values: &Values<'_>) -> Evidence {
        Evidence {
            frame: self.innermost(key),
            context: values
                .addresses(Field::Context)
                .find_map(|address| self.contexts.get(&(key.0, address)).copied()),
            origin: self.origins.get(key).map(|ancestry| ancestry.origin),
            is_origin_sure: self.sure_origin(key).is_some(),
            ..Evidence::default()
        }
    }
}
