//! Types of a crate as far as calls of methods need them: which of the crate's types a field, a parameter or a result holds.
//!
//! A type is the list of the crate's types within it, the outermost first: `PerNode<Option<Kswapd>>` is `PerNode`, `Kswapd`. A
//! method or a field is that of the first one that has it. So options, lists and iterators need no rules of their own.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Fields, FnArg, GenericArgument, GenericParam, Generics, ImplItem, Item, PathArguments, ReturnType, Signature,
    TraitItem, Type, TypeParamBound, punctuated::Punctuated, token::Plus,
};

use super::{
    scope::{Module, Tree, module_of},
    std_names,
};

/// The place of a generic parameter of the type that a method or a field belongs to.
const PARAMETER: &str = "<T>";
/// Types of std around one value, on which its methods can be called.
const TRANSPARENT: [&str; 10] =
    ["Arc", "Box", "Cow", "ManuallyDrop", "MutexGuard", "Rc", "Ref", "RefMut", "RwLockReadGuard", "RwLockWriteGuard"];

/// The types of the crate within a type.
#[derive(Clone, Debug, Default)]
pub(super) struct Ty {
    /// Paths from the crate's root.
    pub(super) within: Vec<String>,
    /// How many options, lists and the like are around the first type of `within`.
    pub(super) wraps: usize,
    /// Whether the type could be told. A type that is known and has nothing within is none of the crate.
    pub(super) is_known: bool,
    /// The parameters of a closure.
    pub(super) inputs: Vec<Ty>,
}

impl Ty {
    /// A type from outside of the crate.
    pub(super) fn foreign() -> Self {
        Self { is_known: true, ..Self::default() }
    }

    pub(super) fn of(id: String) -> Self {
        Self { within: vec![id], ..Self::foreign() }
    }

    /// An element of a list, the value of an option.
    pub(super) fn inner(&self) -> Self {
        Self { wraps: self.wraps.saturating_sub(1), ..self.clone() }
    }

    pub(super) fn wrapped(&self) -> Self {
        Self { wraps: self.wraps + 1, ..self.clone() }
    }

    /// One type that holds these.
    pub(super) fn holding(types: impl IntoIterator<Item = Ty>) -> Self {
        let types: Vec<Ty> = types.into_iter().collect();
        let wraps = types.iter().find(|ty| !ty.within.is_empty()).map_or(0, |ty| ty.wraps);
        let is_known = types.iter().all(|ty| ty.is_known) || types.iter().any(|ty| !ty.within.is_empty());
        let within = types.into_iter().flat_map(|ty| ty.within).collect();
        Self { within, wraps: wraps + 1, is_known, inputs: Vec::new() }
    }

    /// This type with what `outer` holds in the place of a generic parameter.
    fn filled(&self, outer: &[String]) -> Self {
        let fill = |id: &String| if id == PARAMETER { outer.to_vec() } else { vec![id.clone()] };
        let inputs = self.inputs.iter().map(|input| input.filled(outer)).collect();
        Self { within: self.within.iter().flat_map(fill).collect(), inputs, ..self.clone() }
    }
}

/// A function or a method.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// None if it implements a trait, whose name the callers import.
    pub(super) file: Option<String>,
    pub(super) output: Ty,
    /// Without the receiver.
    pub(super) inputs: Vec<Ty>,
}

/// The place of a type in the source: names in the type are looked up from there.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) module: Module,
    /// Meaning of `Self`.
    pub(super) of: Option<Ty>,
    pub(super) generics: BTreeMap<String, Ty>,
}

/// The fields and functions of a crate.
pub(super) struct Types<'a> {
    pub(super) tree: &'a Tree,
    aliases: BTreeMap<String, (Module, &'a Type)>,
    /// By type (or variant) and name.
    fields: BTreeMap<(String, String), Ty>,
    pub(super) functions: BTreeMap<String, Function>,
    methods: BTreeMap<(String, String), Function>,
    /// The type of each method whose name no other type and no trait has.
    unique: BTreeMap<String, Option<String>>,
    constants: BTreeMap<String, Ty>,
}

impl<'a> Types<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        let mut types = Self {
            tree,
            aliases: BTreeMap::new(),
            fields: BTreeMap::new(),
            functions: BTreeMap::new(),
            methods: BTreeMap::new(),
            unique: BTreeMap::new(),
            constants: BTreeMap::new(),
        };
        // Aliases first: the other items name them.
        types.each_item(|types, place, _, item| {
            if let Item::Type(item) = item {
                types.aliases.insert(id(&place.module, &item.ident), (place.module.clone(), &item.ty));
            }
        });
        types.each_item(Self::declare);
        types
    }

    fn each_item(&mut self, mut take: impl FnMut(&mut Self, &Place, &str, &'a Item)) {
        let tree = self.tree;
        let mut left: Vec<(Module, &'a str, &'a Item)> = Vec::new();
        for (file, parsed) in &tree.parsed {
            left.extend(parsed.items.iter().map(|item| (module_of(file), file.as_str(), item)));
        }
        while let Some((module, file, item)) = left.pop() {
            if let Item::Mod(inner) = item {
                let items = inner.content.iter().flat_map(|(_, items)| items);
                let module = [&module[..], &[inner.ident.to_string()]].concat();
                left.extend(items.map(|item| (module.clone(), file, item)));
            } else {
                take(self, &Place { module, ..Place::default() }, file, item);
            }
        }
    }

    fn declare(&mut self, place: &Place, file: &str, item: &'a Item) {
        match item {
            Item::Struct(item) => {
                let place = self.with_parameters(place, &item.generics);
                self.declare_fields(&place, &id(&place.module, &item.ident), &item.fields);
            }
            Item::Enum(item) => {
                let place = self.with_parameters(place, &item.generics);
                for variant in &item.variants {
                    let id = format!("{}::{}", id(&place.module, &item.ident), variant.ident);
                    self.declare_fields(&place, &id, &variant.fields);
                }
            }
            Item::Fn(item) => {
                let function = self.function(place, file, &item.sig);
                self.functions.insert(id(&place.module, &item.sig.ident), function);
            }
            Item::Const(item) => {
                let ty = self.lower(place, &item.ty);
                self.constants.insert(id(&place.module, &item.ident), ty);
            }
            Item::Static(item) => {
                let ty = self.lower(place, &item.ty);
                self.constants.insert(id(&place.module, &item.ident), ty);
            }
            Item::Trait(item) => {
                let of = id(&place.module, &item.ident);
                let place = Place { of: Some(Ty::of(of.clone())), ..place.clone() };
                for method in &item.items {
                    if let TraitItem::Fn(method) = method {
                        self.declare_method(&place, Some(file), &of, &method.sig, false);
                    }
                }
            }
            Item::Impl(item) => {
                let place = self.with_parameters(place, &item.generics);
                let of = self.lower(&place, &item.self_ty);
                let place = Place { of: Some(of.clone()), ..place };
                let Some(of) = of.within.into_iter().next().filter(|_| of.wraps == 0) else { return };
                let file = Some(file).filter(|_| item.trait_.is_none());
                for method in &item.items {
                    if let ImplItem::Fn(method) = method {
                        self.declare_method(&place, file, &of, &method.sig, file.is_some());
                    }
                }
            }
            _ => {}
        }
    }

    fn declare_fields(&mut self, place: &Place, id: &str, fields: &Fields) {
        for (at, field) in fields.iter().enumerate() {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            let ty = self.lower(place, &field.ty);
            self.fields.insert((id.to_owned(), name), ty);
        }
    }

    fn declare_method(&mut self, place: &Place, file: Option<&str>, of: &str, sig: &Signature, is_inherent: bool) {
        let function = Function { file: file.map(str::to_owned), ..self.function(place, "", sig) };
        let name = sig.ident.to_string();
        let one = Some(of.to_owned()).filter(|_| is_inherent);
        self.unique
            .entry(name.clone())
            .and_modify(|known| *known = known.take().filter(|_| *known == one))
            .or_insert(one);
        let key = (of.to_owned(), name);
        if is_inherent || !self.methods.contains_key(&key) {
            self.methods.insert(key, function);
        }
    }

    fn function(&self, place: &Place, file: &str, sig: &Signature) -> Function {
        let place = self.with_generics(place, &sig.generics);
        let typed = sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(self.lower(&place, &input.ty)),
            FnArg::Receiver(_) => None,
        });
        let output = match &sig.output {
            ReturnType::Default => Ty::foreign(),
            ReturnType::Type(_, ty) => self.lower(&place, ty),
        };
        Function { file: Some(file.to_owned()), output, inputs: typed.collect() }
    }

    /// A place within an item with these parameters, which `filled` puts in.
    fn with_parameters(&self, place: &Place, generics: &Generics) -> Place {
        let mut place = self.with_generics(place, generics);
        for ty in place.generics.values_mut() {
            ty.within.push(PARAMETER.to_owned());
            ty.is_known = true;
        }
        place
    }

    /// A place within an item with these parameters, of which only the bounds are known.
    pub(super) fn with_generics(&self, place: &Place, generics: &Generics) -> Place {
        let mut place = place.clone();
        for parameter in &generics.params {
            if let GenericParam::Type(parameter) = parameter {
                let ty = self.bounds(&place, &parameter.bounds);
                place.generics.insert(parameter.ident.to_string(), ty);
            }
        }
        for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
            if let syn::WherePredicate::Type(predicate) = predicate
                && let Type::Path(path) = &predicate.bounded_ty
                && let Some(name) = path.path.get_ident()
            {
                let ty = self.bounds(&place, &predicate.bounds);
                place.generics.insert(name.to_string(), ty);
            }
        }
        place
    }

    fn bounds(&self, place: &Place, bounds: &Punctuated<TypeParamBound, Plus>) -> Ty {
        let mut all = Ty::default();
        for bound in bounds {
            let TypeParamBound::Trait(bound) = bound else { continue };
            let Some(last) = bound.path.segments.last() else { continue };
            all.is_known = true;
            match (self.id_of(place, &bound.path), &last.arguments) {
                (Some(id), _) => all.within.push(id),
                (None, PathArguments::Parenthesized(arguments)) => {
                    all.inputs = arguments.inputs.iter().map(|input| self.lower(place, &input.ty)).collect();
                    if let ReturnType::Type(_, output) = &arguments.output {
                        all.within.extend(self.lower(place, output).within);
                    }
                }
                (None, PathArguments::AngleBracketed(_)) => {
                    let held = self.arguments(place, &last.arguments);
                    all.wraps = held.wraps + 1;
                    all.within.extend(held.within);
                }
                (None, PathArguments::None) => {}
            }
        }
        all
    }

    /// The crate's types within a written type.
    pub(super) fn lower(&self, place: &Place, ty: &Type) -> Ty {
        match ty {
            Type::Reference(inner) => self.lower(place, &inner.elem),
            Type::Paren(inner) => self.lower(place, &inner.elem),
            Type::Group(inner) => self.lower(place, &inner.elem),
            Type::Ptr(inner) => self.lower(place, &inner.elem),
            Type::Slice(inner) => self.lower(place, &inner.elem).wrapped(),
            Type::Array(inner) => self.lower(place, &inner.elem).wrapped(),
            Type::Tuple(inner) => Ty::holding(inner.elems.iter().map(|ty| self.lower(place, ty))),
            Type::ImplTrait(inner) => self.bounds(place, &inner.bounds),
            Type::TraitObject(inner) => self.bounds(place, &inner.bounds),
            Type::Path(path) if path.qself.is_none() => self.lower_path(place, &path.path),
            Type::Infer(_) | Type::Path(_) | Type::Macro(_) => Ty::default(),
            _ => Ty::foreign(),
        }
    }

    fn lower_path(&self, place: &Place, path: &syn::Path) -> Ty {
        let Some(last) = path.segments.last() else { return Ty::default() };
        if let Some(name) = path.get_ident() {
            if name == "Self" {
                return place.of.clone().unwrap_or_default();
            }
            if let Some(ty) = place.generics.get(&name.to_string()) {
                return ty.clone();
            }
        } else if path.segments[0].ident == "Self" || place.generics.contains_key(&path.segments[0].ident.to_string()) {
            return Ty::default();
        }
        let held = self.arguments(place, &last.arguments);
        if let Some(id) = self.id_of(place, path) {
            if let Some((module, ty)) = self.aliases.get(&id) {
                let aliased = self.lower(&Place { module: module.clone(), ..Place::default() }, ty);
                return Ty { within: [aliased.within, held.within].concat(), ..aliased };
            }
            return Ty { within: [vec![id], held.within].concat(), ..Ty::foreign() };
        }
        let wraps = held.wraps + usize::from(!TRANSPARENT.contains(&last.ident.to_string().as_str()));
        Ty { wraps, is_known: true, ..held }
    }

    /// The types of the crate within the arguments of a generic type, a value's types before its key's.
    fn arguments(&self, place: &Place, arguments: &PathArguments) -> Ty {
        let PathArguments::AngleBracketed(arguments) = arguments else { return Ty::foreign() };
        let types = arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(self.lower(place, ty)),
            GenericArgument::AssocType(of) => Some(self.lower(place, &of.ty)),
            _ => None,
        });
        Ty::holding(types.collect::<Vec<_>>().into_iter().rev()).inner()
    }

    /// The path from the crate's root of an item that is named here.
    pub(super) fn id_of(&self, place: &Place, path: &syn::Path) -> Option<String> {
        let found = self.tree.find(&place.module, &names(path))?;
        found.id().filter(|_| found.rest.is_empty())
    }

    pub(super) fn field(&self, of: &Ty, name: &str) -> Ty {
        if !of.is_known {
            return Ty::default();
        }
        let mut fields = of.within.iter().enumerate();
        let found = fields.find_map(|(at, id)| Some((at, self.fields.get(&(id.clone(), name.to_owned()))?)));
        match found {
            Some((at, ty)) => ty.filled(&of.within[at + 1..]),
            // Of a tuple.
            None if name.parse::<usize>().is_ok() => of.inner(),
            None => Ty::default(),
        }
    }

    /// The fields of a struct or of a variant, by its path.
    pub(super) fn field_of(&self, id: &str, of: &Ty, name: &str) -> Ty {
        let held = of.within.get(1..).unwrap_or_default();
        self.fields.get(&(id.to_owned(), name.to_owned())).map(|ty| ty.filled(held)).unwrap_or_default()
    }

    pub(super) fn constant(&self, id: &str) -> Option<&Ty> {
        self.constants.get(id)
    }

    /// The method of a type by its path.
    pub(super) fn method_of(&self, id: &str, name: &str) -> Option<&Function> {
        self.methods.get(&(id.to_owned(), name.to_owned()))
    }

    /// The method that a call on a value of this type means.
    pub(super) fn method(&self, of: &Ty, name: &str) -> Option<Function> {
        for (at, id) in of.within.iter().enumerate() {
            if (at > 0 || of.wraps > 0) && std_names::has(name) {
                return None;
            }
            if let Some(function) = self.method_of(id, name) {
                let held = &of.within[at + 1..];
                let inputs = function.inputs.iter().map(|input| input.filled(held)).collect();
                return Some(Function { output: function.output.filled(held), inputs, ..function.clone() });
            }
        }
        None
    }

    /// The method of this name, if one type has it.
    pub(super) fn only_method(&self, name: &str, foreign: &BTreeSet<&str>) -> Option<Function> {
        if std_names::has(name) || foreign.contains(name) {
            return None;
        }
        self.method_of(self.unique.get(name)?.as_ref()?, name).cloned()
    }

    pub(super) fn method_names(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().map(|(_, name)| name.as_str())
    }
}

/// The names of a path without generic arguments.
pub(super) fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn id(module: &Module, name: &syn::Ident) -> String {
    module.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>().join("::")
}
