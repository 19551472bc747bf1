//! Signatures that debug information does not have: as a person states them, as the table of the
//! standard library has them, or as the method tables of types do.

use crate::argument_info::{Hidden, expected};
use crate::function::{Function, flag};
use crate::{
    AbiType, ArgumentInfo, Convention, Error, Executable, Place, PlacedSignature, PlacedVariable,
    TypeId, TypeSource, assign, dictionary_position,
};

/// Names and types in order.
pub type Declarations = Vec<(String, TypeId)>;

/// Parameters (the receiver first) and results, each as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// `None` when nothing is known of them.
    pub params: Option<Declarations>,
    /// `None` when nothing is known of them.
    pub results: Option<Declarations>,
}

/// Where results are hangs on how much the parameters take on the stack.
const UNSTATED: &str = "lies on the stack behind parameters that are not stated";

/// Instantiations of generics have no names of their own in the table of Go 1.19.
const SHAPELESS: &str = "[...]";

impl Declared {
    /// Places the values by the calling convention. Fails when they contradict what the executable
    /// says of the function's arguments, with what it says.
    pub fn place(
        &self,
        executable: &Executable,
        function: &Function,
        types: TypeSource<'_>,
        convention: Convention,
    ) -> Result<Result<PlacedSignature, String>, Error> {
        if function.name.contains(SHAPELESS) {
            return Ok(Err("which instantiation of a generic this is is not known".to_owned()));
        }
        let dictionary = dictionary_position(&function.name, executable.go_version());
        let known = |values: &Option<Declarations>| values.clone().unwrap_or_default();
        let (params, results) = (known(&self.params), known(&self.results));
        let abi = |values: &Declarations| -> Result<Vec<AbiType>, Error> {
            values.iter().map(|(_, id)| types.abi_type(*id)).collect()
        };
        let mut param_types = abi(&params)?;
        if let Some(position) = dictionary {
            param_types.insert(position.min(params.len()), AbiType::WORD);
        }
        let mut places = assign(&param_types, &abi(&results)?, convention);
        let position = dictionary.filter(|position| *position < places.params.len());
        let dictionary = position.map(|position| places.params.remove(position));
        let placed = |values: Declarations, places: Vec<Place>| -> Result<Vec<_>, Error> {
            let all = values.into_iter().zip(places).map(|((name, id), place)| {
                Ok(PlacedVariable { name, ty: types.type_info(id)?, place: Ok(place) })
            });
            all.collect()
        };
        let mut signature = PlacedSignature {
            name: function.name.clone(),
            params: placed(params, places.params)?,
            results: placed(results, places.results)?,
            dictionary,
        };
        if self.params.is_none() {
            for result in &mut signature.results {
                if matches!(result.place, Ok(Place::Stack { .. })) {
                    result.place = Err(UNSTATED.to_owned());
                }
            }
        } else if let Some(contradiction) = signature.contradiction(
            executable,
            function,
            types,
            convention,
            self.results.is_some(),
        )? {
            return Ok(Err(contradiction));
        }
        Ok(Ok(signature))
    }
}

impl PlacedSignature {
    /// How the executable's own description of a function's arguments differs; `None` also where it
    /// has none that could: of assembly, of instantiations without names of their own, of closures in generic functions (which may
    /// have a dictionary among what they captured) and with C types. Without
    /// `knows_results`, results are not compared.
    pub fn contradiction(
        &self,
        executable: &Executable,
        function: &Function,
        types: TypeSource<'_>,
        convention: Convention,
        knows_results: bool,
    ) -> Result<Option<String>, Error> {
        if function.flags & flag::ASM != 0 || function.name.contains(SHAPELESS) {
            return Ok(None);
        }
        let dictionary = dictionary_position(&function.name, executable.go_version());
        let is_bracketed = function.name.contains('[');
        if is_bracketed && dictionary.is_none() {
            return Ok(None);
        }
        let hidden = Hidden { dictionary, skipped: is_bracketed.into() };
        let expected = expected(&self.params, &self.results, types, convention, hidden)?;
        let Some((expected, bytes)) = expected else { return Ok(None) };
        let found = executable.functions()?.argument_info(function).unwrap_or_default();
        if !found.agrees_with(&expected, knows_results) {
            let takes = |info: &ArgumentInfo| match info.is_empty() {
                true => "nothing".to_owned(),
                false => format!("({info}) bytes"),
            };
            let (found, expected) = (takes(&found), takes(&expected));
            return Ok(Some(format!("{} takes {found}, and this is {expected}", function.name)));
        }
        let is_other = |size: &u32| knows_results && u64::from(*size) != bytes;
        Ok(function.args_size.filter(is_other).map(|size| {
            format!("{} takes {size} bytes of stack, and this is {bytes}", function.name)
        }))
    }
}
