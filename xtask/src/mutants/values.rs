//! Simple return values for a function, chosen by the name of the return type.
//!
//! Types are identified by their spelling only. A value of a wrong type does not build, and is
//! omitted.

use syn::{GenericArgument, PathArguments, PathSegment, Type};

/// Returns a few simple values of a type as source text; none for unknown types.
pub(super) fn values(ty: &Type) -> Vec<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map_or_else(Vec::new, values_of_path),
        Type::Tuple(tuple) => tuple
            .elems
            .iter()
            .map(values)
            .fold(vec![String::new()], |beginnings, values| pairs(&beginnings, &values))
            .into_iter()
            .map(|elements| format!("({elements})"))
            .collect(),
        Type::Reference(reference) if reference.mutability.is_none() => match &*reference.elem {
            Type::Slice(_) => texts(&["&[]"]),
            Type::Path(path) if path.path.is_ident("str") => texts(&["\"\""]),
            _ => texts(&["Box::leak(Box::default())"]),
        },
        Type::Paren(inner) => values(&inner.elem),
        _ => Vec::new(),
    }
}

/// Returns whether a type is `impl Iterator`, which may be empty.
pub(super) fn is_iterator(ty: &Type) -> bool {
    let Type::ImplTrait(traits) = ty else { return false };
    traits.bounds.iter().any(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|last| last.ident == "Iterator")
        }
        _ => false,
    })
}

fn values_of_path(segment: &PathSegment) -> Vec<String> {
    let inner = || argument(segment).map_or_else(Vec::new, values);
    let wrapped =
        |name: &str| inner().into_iter().map(|value| format!("{name}({value})")).collect();
    match segment.ident.to_string().as_str() {
        "bool" => texts(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => texts(&["0", "1"]),
        "Option" => [texts(&["None"]), wrapped("Some")].concat(),
        "Result" => wrapped("Ok"),
        _ => texts(&["Default::default()"]),
    }
}

/// Returns the first type argument of a path.
fn argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Combines every partial tuple with every next value.
fn pairs(beginnings: &[String], values: &[String]) -> Vec<String> {
    let with = |beginning: &String| {
        values.iter().map(|value| format!("{beginning}{value}, ")).collect::<Vec<_>>()
    };
    beginnings.iter().flat_map(with).take(TUPLES_MAX).collect()
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Maximum number of tuples.
const TUPLES_MAX: usize = 4;
