//! The names that the files of a crate use.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Arm, Attribute, Block, Expr, ExprCall, ExprClosure, ExprForLoop, ExprIf, ExprLet, ExprMethodCall, ExprWhile, FnArg,
    Generics, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemTrait, ItemUse, Local, Macro, Member, Pat, Signature,
    Stmt, Token, TraitItemFn, Visibility,
    parse::{ParseStream, Parser},
    visit::{self, Visit},
};

use super::{
    Tie,
    scope::{Found, leaves, module_of},
    types::{Function, Place, Ty, Types, names},
};

/// Methods that give the value that an option or a result holds.
const TAKES_OUT: [&str; 5] = ["expect", "unwrap", "unwrap_or", "unwrap_or_default", "unwrap_or_else"];
/// Methods whose result is that of a closure, and whether that is in one more option or iterator.
const RUNS_CLOSURE: [(&str, usize); 13] = [
    ("and_then", 0),
    ("filter_map", 0),
    ("find_map", 0),
    ("flat_map", 0),
    ("fold", 0),
    ("map", 1),
    ("map_or", 0),
    ("map_or_else", 0),
    ("map_while", 0),
    ("or_else", 0),
    ("scan", 0),
    ("then", 1),
    ("try_fold", 0),
];

/// The ties between files. `foreign`: names of methods of other crates.
pub(super) fn ties(types: &Types, foreign: &BTreeSet<&str>) -> BTreeSet<Tie> {
    let mut ties = BTreeSet::new();
    for (file, parsed) in &types.tree.parsed {
        let place = Place { module: module_of(file), ..Place::default() };
        let mut uses = Uses { types, foreign, place, locals: Vec::new(), found: BTreeSet::new() };
        uses.visit_file(parsed);
        let others = uses.found.into_iter().filter(|(to, _)| to != file);
        ties.extend(others.map(|(to, name)| (file.clone(), to, name)));
    }
    ties
}

/// The files that one file uses, with the names.
struct Uses<'a> {
    types: &'a Types<'a>,
    foreign: &'a BTreeSet<&'a str>,
    place: Place,
    /// Variables of each block, the innermost last.
    locals: Vec<BTreeMap<String, Ty>>,
    found: BTreeSet<(String, String)>,
}

impl Uses<'_> {
    fn note(&mut self, path: &[String]) {
        if let Some(found) = self.types.tree.find(&self.place.module, path) {
            self.note_found(&found);
        }
    }

    fn note_found(&mut self, found: &Found) {
        let (Some(id), Some(item)) = (found.id(), &found.item) else { return };
        let file = self.types.tree.file_of(&found.module).map(str::to_owned);
        self.found.extend(file.map(|file| (file, item.clone())));
        if let Some(method) = found.rest.first() {
            self.note_method(self.types.method_of(&id, method).cloned().as_ref(), method);
        }
    }

    fn note_method(&mut self, method: Option<&Function>, name: &str) {
        let file = method.and_then(|method| method.file.clone());
        self.found.extend(file.map(|file| (file, name.to_owned())));
    }

    fn local(&self, name: &str) -> Option<&Ty> {
        self.locals.iter().rev().find_map(|block| block.get(name))
    }

    fn within<R>(&mut self, take: impl FnOnce(&mut Self) -> R) -> R {
        self.locals.push(BTreeMap::new());
        let result = take(self);
        self.locals.pop();
        result
    }

    /// Visits an item whose generics, and perhaps `Self`, mean something.
    fn at(&mut self, place: Place, take: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.place, place);
        take(self);
        self.place = outer;
    }

    fn function(&mut self, sig: &Signature, take: impl FnOnce(&mut Self)) {
        let place = self.types.with_generics(&self.place, &sig.generics);
        self.at(place, |uses| {
            uses.within(|uses| {
                for input in &sig.inputs {
                    match input {
                        FnArg::Typed(input) => {
                            let ty = uses.types.lower(&uses.place, &input.ty);
                            uses.bind(&input.pat, &ty);
                        }
                        FnArg::Receiver(_) => {
                            let of = uses.place.of.clone().unwrap_or_default();
                            uses.set("self", of);
                        }
                    }
                }
                take(uses);
            });
        });
    }

    fn of_generics(&self, generics: &Generics) -> Place {
        self.types.with_generics(&self.place, generics)
    }

    fn set(&mut self, name: &str, ty: Ty) {
        if let Some(block) = self.locals.last_mut() {
            block.insert(name.to_owned(), ty);
        }
    }

    /// Gives the variables of a pattern their types.
    fn bind(&mut self, pattern: &Pat, ty: &Ty) {
        match pattern {
            Pat::Ident(ident) => {
                self.set(&ident.ident.to_string(), ty.clone());
                if let Some((_, inner)) = &ident.subpat {
                    self.bind(inner, ty);
                }
            }
            Pat::Reference(inner) => self.bind(&inner.pat, ty),
            Pat::Paren(inner) => self.bind(&inner.pat, ty),
            Pat::Guard(inner) => self.bind(&inner.pat, ty),
            Pat::Or(inner) => inner.cases.iter().for_each(|case| self.bind(case, ty)),
            Pat::Tuple(inner) => inner.elems.iter().for_each(|elem| self.bind(elem, &ty.inner())),
            Pat::Slice(inner) => inner.elems.iter().for_each(|elem| self.bind(elem, &ty.inner())),
            Pat::Type(inner) => {
                let ty = self.types.lower(&self.place, &inner.ty);
                self.bind(&inner.pat, &ty);
            }
            Pat::TupleStruct(inner) => {
                let id = self.id_of(&inner.path);
                for (at, elem) in inner.elems.iter().enumerate() {
                    let held = match &id {
                        Some(id) => self.types.field_of(id, ty, &at.to_string()),
                        None if inner.path.is_ident("Err") => Ty::default(),
                        None => ty.inner(),
                    };
                    self.bind(elem, &held);
                }
            }
            Pat::Struct(inner) => {
                let id = self.id_of(&inner.path);
                for field in &inner.fields {
                    let name = member(&field.member);
                    let held = id.as_ref().map(|id| self.types.field_of(id, ty, &name)).unwrap_or_default();
                    self.bind(&field.pat, &held);
                }
            }
            _ => {}
        }
    }

    /// The path from the crate's root of a struct or a variant.
    fn id_of(&self, path: &syn::Path) -> Option<String> {
        let (id, rest) = self.resolve(path)?;
        Some([&[id], &rest[..]].concat().join("::"))
    }

    /// An item of the crate, and the names behind it; `Self` is one, too.
    fn resolve(&self, path: &syn::Path) -> Option<(String, Vec<String>)> {
        let names = names(path);
        if names[0] == "Self" {
            let of = self.place.of.as_ref().filter(|of| of.wraps == 0)?;
            return Some((of.within.first()?.clone(), names[1..].to_vec()));
        }
        let found = self.types.tree.find(&self.place.module, &names)?;
        Some((found.id()?, found.rest))
    }

    /// The type of an expression, as far as it can be told simply.
    fn type_of(&mut self, expression: &Expr) -> Ty {
        match expression {
            Expr::Path(path) => self.type_of_path(&path.path),
            Expr::Field(field) => {
                let base = self.type_of(&field.base);
                self.types.field(&base, &member(&field.member))
            }
            Expr::MethodCall(call) => self.type_of_method_call(call),
            Expr::Call(call) => self.type_of_call(call),
            Expr::Reference(inner) => self.type_of(&inner.expr),
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Group(inner) => self.type_of(&inner.expr),
            Expr::Await(inner) => self.type_of(&inner.base),
            Expr::Unary(inner) => self.type_of(&inner.expr),
            Expr::Try(inner) => self.type_of(&inner.expr).inner(),
            Expr::Index(index) => self.type_of_index(&index.expr, &index.index),
            Expr::Struct(made) => self.resolve(&made.path).map_or_else(Ty::default, |(id, _)| Ty::of(id)),
            Expr::Tuple(tuple) => {
                let types: Vec<Ty> = tuple.elems.iter().map(|elem| self.type_of(elem)).collect();
                Ty::holding(types)
            }
            Expr::Array(array) => array.elems.first().map_or_else(Ty::foreign, |elem| self.type_of(elem).wrapped()),
            Expr::Repeat(repeat) => self.type_of(&repeat.expr).wrapped(),
            Expr::Block(block) => self.type_of_block(&block.block),
            Expr::If(choice) => self.within(|uses| {
                if let Expr::Let(condition) = &*choice.cond {
                    let ty = uses.type_of(&condition.expr);
                    uses.bind(&condition.pat, &ty);
                }
                let ty = uses.type_of_block(&choice.then_branch);
                match &choice.else_branch {
                    Some((_, other)) if ty.within.is_empty() => uses.type_of(other),
                    _ => ty,
                }
            }),
            Expr::Match(choice) => {
                let matched = self.type_of(&choice.expr);
                let mut types = choice.arms.iter().map(|arm| {
                    self.within(|uses| {
                        uses.bind(&arm.pat, &matched);
                        uses.type_of(&arm.body)
                    })
                });
                types.find(|ty| !ty.within.is_empty()).unwrap_or_default()
            }
            Expr::Cast(cast) => self.types.lower(&self.place, &cast.ty),
            Expr::Lit(_) | Expr::Binary(_) | Expr::Range(_) | Expr::Assign(_) => Ty::foreign(),
            _ => Ty::default(),
        }
    }

    fn type_of_block(&mut self, block: &Block) -> Ty {
        self.within(|uses| {
            let (last, before) = block.stmts.split_last()?;
            for statement in before {
                if let Stmt::Local(local) = statement {
                    uses.bind_local(local);
                }
            }
            match last {
                Stmt::Expr(value, None) => Some(uses.type_of(value)),
                _ => None,
            }
        })
        .unwrap_or_default()
    }

    fn type_of_path(&mut self, path: &syn::Path) -> Ty {
        if let Some(local) = path.get_ident().and_then(|name| self.local(&name.to_string())) {
            return local.clone();
        }
        let Some((id, rest)) = self.resolve(path) else { return Ty::default() };
        if rest.is_empty() {
            return self.types.constant(&id).cloned().unwrap_or_else(|| Ty::of(id));
        }
        // A variant. Constants of types are no variants, and often of another type.
        let is_variant = rest.iter().all(|name| name.chars().any(char::is_lowercase));
        if is_variant { Ty::of(id) } else { Ty::default() }
    }

    fn type_of_index(&mut self, list: &Expr, index: &Expr) -> Ty {
        let ty = self.type_of(list);
        if matches!(index, Expr::Range(_)) {
            return ty;
        }
        // A list of the crate's own holds what its arguments say.
        if ty.wraps == 0 && ty.within.len() > 1 { Ty { within: ty.within[1..].to_vec(), ..ty } } else { ty.inner() }
    }

    fn type_of_call(&mut self, call: &ExprCall) -> Ty {
        let Expr::Path(path) = &*call.func else { return Ty::default() };
        let name = path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        let Some((id, rest)) = self.resolve(&path.path) else {
            // `Some(x)`, `Vec::from(x)`: as much as there is in the argument.
            let wraps = usize::from(["Some", "Ok"].contains(&name.as_str()));
            let is_around = wraps > 0 || name == "new" || name == "from";
            return match call.args.first().filter(|_| is_around) {
                Some(argument) => {
                    let ty = self.type_of(argument);
                    Ty { wraps: ty.wraps + wraps, ..ty }
                }
                None => Ty::default(),
            };
        };
        match rest.first() {
            None => match self.types.functions.get(&id) {
                Some(function) => function.output.clone(),
                None => Ty::of(id), // a tuple struct
            },
            Some(name) => match self.types.method_of(&id, name) {
                Some(method) => method.output.clone(),
                None if name.starts_with(char::is_uppercase) || name == "default" => Ty::of(id),
                None => Ty::default(),
            },
        }
    }

    fn type_of_method_call(&mut self, call: &ExprMethodCall) -> Ty {
        let of = self.type_of(&call.receiver);
        let name = call.method.to_string();
        if let Some(method) = self.method(&of, &name) {
            return method.output;
        }
        if TAKES_OUT.contains(&name.as_str()) {
            return of.inner();
        }
        if let Some((_, wraps)) = RUNS_CLOSURE.iter().find(|(closure, _)| *closure == name) {
            let result = match call.args.last() {
                Some(Expr::Closure(closure)) => self.type_of_closure(closure, None, &of),
                Some(Expr::Path(path)) => {
                    let function = self.resolve(&path.path).filter(|(_, rest)| rest.is_empty());
                    let function = function.and_then(|(id, _)| self.types.functions.get(&id));
                    function.map(|function| function.output.clone()).unwrap_or_default()
                }
                _ => Ty::default(),
            };
            return Ty { wraps: result.wraps + wraps, ..result };
        }
        let is_kept = ["as_mut", "as_ref", "borrow", "borrow_mut", "clone", "to_owned"].contains(&name.as_str());
        if of.wraps > 0 || is_kept || of.within.is_empty() { of } else { Ty::default() }
    }

    /// The method that a call means.
    fn method(&self, of: &Ty, name: &str) -> Option<Function> {
        if of.is_known { self.types.method(of, name) } else { self.types.only_method(name, self.foreign) }
    }

    fn type_of_closure(&mut self, closure: &ExprClosure, inputs: Option<&[Ty]>, held: &Ty) -> Ty {
        self.within(|uses| {
            uses.bind_closure(closure, inputs, held);
            uses.type_of(&closure.body)
        })
    }

    /// Parameters of a closure: as the function says that takes it, else elements of the value whose method that is.
    fn bind_closure(&mut self, closure: &ExprClosure, inputs: Option<&[Ty]>, held: &Ty) {
        for (at, pattern) in closure.inputs.iter().enumerate() {
            let ty = inputs.map_or_else(|| held.inner(), |inputs| inputs.get(at).cloned().unwrap_or_default());
            self.bind(pattern, &ty);
        }
    }

    fn bind_local(&mut self, local: &Local) {
        let ty = local.init.as_ref().map(|init| self.type_of(&init.expr)).unwrap_or_default();
        self.bind(&local.pat, &ty);
    }

    /// Visits arguments, and closures among them with what is known of their parameters.
    fn arguments<'b>(&mut self, arguments: impl Iterator<Item = &'b Expr>, called: Option<&Function>, held: &Ty) {
        for (at, argument) in arguments.enumerate() {
            match argument {
                Expr::Closure(closure) => self.within(|uses| {
                    let inputs = called.map(|called| called.inputs.get(at).map_or(&[][..], |ty| &ty.inputs));
                    uses.bind_closure(closure, inputs, held);
                    visit::visit_expr_closure(uses, closure);
                }),
                argument => self.visit_expr(argument),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            let mut place = self.place.clone();
            place.module.push(item.ident.to_string());
            self.at(place, |uses| visit::visit_item_mod(uses, item));
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // An export ties its users.
        if matches!(item.vis, Visibility::Inherited) {
            leaves(&item.tree, &mut Vec::new(), &mut |path, _| self.note(path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = names(path);
        if names[0] == "Self" {
            if let (Some((id, rest)), true) = (self.resolve(path), names.len() > 1) {
                self.note_method(self.types.method_of(&id, &rest[0]).cloned().as_ref(), &rest[0]);
            }
        } else if names.len() > 1 || self.local(&names[0]).is_none() {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        // A function within a function does not see the outer one's variables.
        let outer = std::mem::take(&mut self.locals);
        visit::visit_item(self, item);
        self.locals = outer;
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let mut place = self.of_generics(&item.generics);
        place.of = Some(self.types.lower(&place, &item.self_ty));
        self.at(place, |uses| visit::visit_item_impl(uses, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        let mut place = self.of_generics(&item.generics);
        let found = self.types.tree.find(&place.module, &[item.ident.to_string()]);
        place.of = found.and_then(|found| found.id()).map(Ty::of);
        self.at(place, |uses| visit::visit_item_trait(uses, item));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, |uses| visit::visit_item_fn(uses, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, |uses| visit::visit_impl_item_fn(uses, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.function(&item.sig, |uses| visit::visit_trait_item_fn(uses, item));
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.within(|uses| visit::visit_block(uses, block));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        self.bind_local(local);
    }

    fn visit_expr_let(&mut self, condition: &'ast ExprLet) {
        visit::visit_expr_let(self, condition);
        let ty = self.type_of(&condition.expr);
        self.bind(&condition.pat, &ty);
    }

    fn visit_expr_if(&mut self, choice: &'ast ExprIf) {
        self.within(|uses| {
            uses.visit_expr(&choice.cond);
            uses.visit_block(&choice.then_branch);
        });
        if let Some((_, other)) = &choice.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, repeated: &'ast ExprWhile) {
        self.within(|uses| visit::visit_expr_while(uses, repeated));
    }

    fn visit_expr_match(&mut self, choice: &'ast syn::ExprMatch) {
        self.visit_expr(&choice.expr);
        let matched = self.type_of(&choice.expr);
        for arm in &choice.arms {
            self.arm(arm, &matched);
        }
    }

    fn visit_expr_for_loop(&mut self, repeated: &'ast ExprForLoop) {
        self.visit_expr(&repeated.expr);
        let element = self.type_of(&repeated.expr).inner();
        self.within(|uses| {
            uses.bind(&repeated.pat, &element);
            uses.visit_pat(&repeated.pat);
            uses.visit_block(&repeated.body);
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        self.within(|uses| {
            uses.bind_closure(closure, Some(&[]), &Ty::default());
            visit::visit_expr_closure(uses, closure);
        });
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        self.visit_expr(&call.func);
        let called = match &*call.func {
            Expr::Path(path) => self.resolve(&path.path).and_then(|(id, _)| self.types.functions.get(&id).cloned()),
            _ => None,
        };
        self.arguments(call.args.iter(), called.as_ref(), &Ty::default());
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if let Some(types) = &call.turbofish {
            self.visit_angle_bracketed_generic_arguments(types);
        }
        let of = self.type_of(&call.receiver);
        let name = call.method.to_string();
        let method = self.method(&of, &name);
        self.note_method(method.as_ref(), &name);
        self.arguments(call.args.iter(), method.as_ref(), &of);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let parser = |input: ParseStream| Ok(expressions(input));
        for expression in parser.parse2(called.tokens.clone()).unwrap_or_default() {
            self.visit_expr(&expression);
        }
    }
}

impl Uses<'_> {
    fn arm(&mut self, arm: &Arm, matched: &Ty) {
        self.within(|uses| {
            uses.bind(&arm.pat, matched);
            uses.visit_pat(&arm.pat);
            uses.visit_expr(&arm.body);
        });
    }
}

/// The expressions at the beginning of a macro's arguments, as with `assert!`.
fn expressions(input: ParseStream) -> Vec<Expr> {
    let mut expressions = Vec::new();
    while let Ok(expression) = input.parse() {
        expressions.push(expression);
        if input.parse::<Token![,]>().is_err() {
            break;
        }
    }
    // The parser wants all of them taken.
    let _ = input.step(|cursor| {
        let mut rest = *cursor;
        while let Some((_, next)) = rest.token_tree() {
            rest = next;
        }
        Ok(((), rest))
    });
    expressions
}

fn member(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}
