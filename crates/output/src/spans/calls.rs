//! What calls within spans say, in the form that it is written in later.

use crate::call_json::{push_arguments, push_caller, push_results, push_ret};
use crate::call_text;
use crate::places::Places;
use crate::sched::{Origins, PlaceJson};
use probe::Plan;
use sensors::{CallText, CallTexts};
use std::sync::Arc;
use timeline::states::Origin;
use timeline::{Call, Symbolizer};

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// For people.
    Text,
    /// Members of JSON objects.
    Json,
}

/// Makes the texts of calls of a plan.
#[derive(Debug)]
pub struct CallWriter {
    plan: Arc<Plan>,
    form: CallForm,
    places: Places,
    origins: Origins,
}

impl CallWriter {
    /// For calls of `plan`.
    pub fn new(plan: Arc<Plan>, form: CallForm) -> Self {
        Self { plan, form, places: Places::default(), origins: Origins::default() }
    }

    /// Forgets the addresses of a process: it is gone or has another image.
    pub fn forget(&mut self, pid: u32) {
        self.places.forget(pid);
        self.origins.forget(pid);
    }
}

impl CallTexts for CallWriter {
    fn at_entry(&mut self, call: &Call, symbols: &dyn Symbolizer) -> CallText {
        let Self { plan, form, places, .. } = self;
        match form {
            CallForm::Text => {
                let mut values = String::new();
                call_text::push_arguments(&mut values, plan, call, symbols);
                CallText { values, place: call_text::call_site(places, call, symbols) }
            }
            CallForm::Json => {
                let caller = places.caller(call, symbols);
                CallText {
                    values: json(|line| push_arguments(line, plan, call, symbols)),
                    place: json(|line| push_caller(line, &caller, call.caller)),
                }
            }
        }
    }

    fn at_return(&mut self, call: &Call, symbols: &dyn Symbolizer) -> CallText {
        let Self { plan, form, places, .. } = self;
        match form {
            CallForm::Text => {
                let mut values = String::new();
                call_text::push_end(&mut values, plan, call, symbols);
                CallText { values, place: String::new() }
            }
            CallForm::Json => {
                let ret = places.exit(call, plan, symbols);
                CallText {
                    values: json(|line| push_results(line, plan, call, symbols)),
                    place: json(|line| push_ret(line, &ret)),
                }
            }
        }
    }

    fn of_goroutine(&mut self, pid: u32, origin: &Origin, symbols: &dyn Symbolizer) -> String {
        match self.form {
            CallForm::Text => self.origins.text(pid, origin, symbols),
            CallForm::Json => {
                let start = self.origins.start(pid, origin, symbols);
                let func = start.as_ref().map(|place| &place.func);
                let by = self.origins.created_by(pid, origin, symbols);
                let by = by.as_ref().map(|place| PlaceJson::of(place));
                json(|line| {
                    line.extend_from_slice(b"\"func\":");
                    // A Vec takes everything.
                    _ = serde_json::to_writer(&mut *line, &func);
                    line.extend_from_slice(b",\"created_by\":");
                    _ = serde_json::to_writer(line, &by);
                })
            }
        }
    }
}

fn json(push: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut line = Vec::new();
    push(&mut line);
    String::from_utf8(line).unwrap_or_default()
}
