//! Declarations as numbers: the values of constants, the sizes and offsets of types, for x86-64.
//!
//! That it computes what the compiler does is tested: it must find each layout that `layout!` asserts.

use std::collections::BTreeMap;

use syn::{BinOp, Expr, GenericArgument, Lit, PathArguments, ReturnType, Type, UnOp};

use crate::source::{Aggregate, Declarations, Named};

/// Size and alignment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    pub(crate) size: u64,
    align: u64,
}

/// A member's offset and extent.
pub(crate) type Member = (u64, Extent);
type Members<'a> = Vec<(&'a str, &'a Type, Member)>;

impl Declarations {
    /// The value of a constant, as the bits of its type.
    pub(crate) fn value(&self, (ty, expr): &(Type, Expr)) -> Option<u128> {
        let size = self.extent(ty)?.size;
        let bits = self.number(expr)?;
        Some(if size >= 16 { bits } else { bits & ((1 << (8 * size)) - 1) })
    }

    /// In two's complement.
    fn number(&self, expr: &Expr) -> Option<u128> {
        match expr {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => number.base10_parse().ok(),
                Lit::Byte(byte) => Some(byte.value().into()),
                _ => None,
            },
            Expr::Paren(inner) => self.number(&inner.expr),
            Expr::Cast(cast) => self.number(&cast.expr),
            Expr::Field(field) => self.number(&field.base),
            Expr::Unary(unary) => match unary.op {
                UnOp::Neg(_) => self.number(&unary.expr).map(u128::wrapping_neg),
                UnOp::Not(_) => self.number(&unary.expr).map(|bits| !bits),
                _ => None,
            },
            Expr::Binary(binary) => self.combined(binary),
            Expr::MethodCall(call) if call.method == "cast_signed" => self.number(&call.receiver),
            Expr::Call(call) => self.called(call),
            Expr::Struct(literal) => self.guid(literal),
            Expr::Path(path) => self.named(&path.path),
            _ => None,
        }
    }

    fn combined(&self, binary: &syn::ExprBinary) -> Option<u128> {
        let (left, right) = (self.number(&binary.left)?, self.number(&binary.right)?);
        match binary.op {
            BinOp::Add(_) => Some(left.wrapping_add(right)),
            BinOp::Sub(_) => Some(left.wrapping_sub(right)),
            BinOp::Mul(_) => Some(left.wrapping_mul(right)),
            BinOp::BitOr(_) => Some(left | right),
            BinOp::BitAnd(_) => Some(left & right),
            BinOp::Shl(_) => Some(left << right),
            _ => None,
        }
    }

    /// A newtype around a number, or `GUID::from_u128`.
    fn called(&self, call: &syn::ExprCall) -> Option<u128> {
        let Expr::Path(function) = &*call.func else { return None };
        let last = function.path.segments.last()?;
        match (last.ident.to_string().as_str(), &last.arguments) {
            ("size_of", PathArguments::AngleBracketed(arguments)) => match arguments.args.first() {
                Some(GenericArgument::Type(ty)) => Some(self.extent(ty)?.size.into()),
                _ => None,
            },
            (name, _) if name == "from_u128" || self.types.contains_key(name) => {
                self.number(call.args.first()?)
            }
            _ => None,
        }
    }

    /// The number that `GUID::from_u128` takes.
    fn guid(&self, literal: &syn::ExprStruct) -> Option<u128> {
        let mut bits = 0;
        for (field, width) in literal.fields.iter().zip([32, 16, 16, 8]) {
            let parts: Vec<&Expr> = match &field.expr {
                Expr::Array(array) => array.elems.iter().collect(),
                single => vec![single],
            };
            for part in parts {
                bits = bits << width | self.number(part)?;
            }
        }
        literal.path.is_ident("GUID").then_some(bits)
    }

    fn named(&self, path: &syn::Path) -> Option<u128> {
        let last = path.segments.last()?.ident.to_string();
        if last == "MAX" {
            let mut ty = path.clone();
            ty.segments = ty.segments.into_iter().take(path.segments.len() - 1).collect();
            let size = self.extent(&syn::parse_quote!(#ty))?.size;
            return Some((1 << (8 * size)) - 1);
        }
        self.constants.get(&last)?.first().and_then(|(_, expr)| self.number(expr))
    }

    pub(crate) fn extent(&self, ty: &Type) -> Option<Extent> {
        let plain = |size| Some(Extent { size, align: size.max(1) });
        match ty {
            Type::Ptr(_) | Type::Reference(_) | Type::BareFn(_) => plain(8),
            Type::Never(_) => plain(0),
            Type::Tuple(tuple) if tuple.elems.is_empty() => plain(0),
            Type::Array(array) => {
                let Extent { size, align } = self.extent(&array.elem)?;
                let len = u64::try_from(self.number(&array.len)?).ok()?;
                Some(Extent { size: size * len, align })
            }
            Type::Path(path) => {
                let last = path.path.segments.last()?;
                match last.ident.to_string().as_str() {
                    "u8" | "i8" | "bool" => plain(1),
                    "u16" | "i16" => plain(2),
                    "u32" | "i32" | "f32" => plain(4),
                    "u64" | "i64" | "usize" | "isize" | "f64" => plain(8),
                    // Each is as its argument; the pointer in an `Option` may be null.
                    "Option" | "UnsafeCell" => match &last.arguments {
                        PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
                            GenericArgument::Type(inner) => self.extent(inner),
                            _ => None,
                        },
                        _ => None,
                    },
                    name => match self.types.get(name)? {
                        Named::Alias(ty) => self.extent(ty),
                        Named::Aggregate(aggregate) => Some(self.lay_out(aggregate)?.0),
                    },
                }
            }
            _ => None,
        }
    }

    /// The members of a structure or a union; those of anonymous members, which C names directly, too.
    pub(crate) fn members(&self, aggregate: &Aggregate) -> Option<BTreeMap<String, Member>> {
        let mut all = BTreeMap::new();
        for (name, ty, (offset, extent)) in self.lay_out(aggregate)?.1 {
            if let (true, Type::Path(path)) = (name.starts_with("Anonymous"), ty) {
                let inner = path.path.segments.last()?.ident.to_string();
                let Named::Aggregate(inner) = self.types.get(&inner)? else { return None };
                for (name, (inside, extent)) in self.members(inner)? {
                    all.insert(name, (offset + inside, extent));
                }
            }
            // `windows-sys` writes the members of some structures in lower case.
            all.insert(name.to_lowercase(), (offset, extent));
        }
        Some(all)
    }

    fn lay_out<'a>(&self, aggregate: &'a Aggregate) -> Option<(Extent, Members<'a>)> {
        let (mut packed, mut align) = (u64::MAX, 1);
        for attribute in aggregate.attributes.iter().filter(|a| a.path().is_ident("repr")) {
            let parsed = attribute.parse_nested_meta(|meta| {
                let number = |meta: &syn::meta::ParseNestedMeta<'_>| {
                    let inside;
                    syn::parenthesized!(inside in meta.input);
                    inside.parse::<syn::LitInt>()?.base10_parse::<u64>()
                };
                if meta.path.is_ident("packed") {
                    packed = if meta.input.is_empty() { 1 } else { number(&meta)? };
                } else if meta.path.is_ident("align") {
                    align = number(&meta)?;
                }
                Ok(())
            });
            parsed.ok()?;
        }
        let (mut end, mut members) = (0, Vec::new());
        for (name, ty) in &aggregate.members {
            let extent = self.extent(ty)?;
            let natural = extent.align.min(packed);
            align = align.max(natural);
            let offset = if aggregate.union { 0_u64 } else { u64::next_multiple_of(end, natural) };
            end = end.max(offset + extent.size);
            members.push((name.as_str(), ty, (offset, extent)));
        }
        Some((Extent { size: end.next_multiple_of(align), align }, members))
    }

    /// The sizes of a function's arguments, and of its result.
    pub(crate) fn widths(&self, signature: &syn::Signature) -> Option<Vec<u64>> {
        let mut widths = Vec::new();
        for argument in &signature.inputs {
            let syn::FnArg::Typed(argument) = argument else { return None };
            widths.push(self.extent(&argument.ty)?.size);
        }
        widths.push(match &signature.output {
            ReturnType::Default => 0,
            ReturnType::Type(_, ty) => self.extent(ty)?.size,
        });
        Some(widths)
    }

    /// The same of a type that is a pointer to a function.
    pub(crate) fn pointer_widths(&self, ty: &Type) -> Option<Vec<u64>> {
        match ty {
            Type::BareFn(function) => {
                let mut widths = Vec::new();
                for argument in &function.inputs {
                    widths.push(self.extent(&argument.ty)?.size);
                }
                widths.push(match &function.output {
                    ReturnType::Default => 0,
                    ReturnType::Type(_, ty) => self.extent(ty)?.size,
                });
                Some(widths)
            }
            Type::Path(path) => match &path.path.segments.last()?.arguments {
                PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
                    GenericArgument::Type(inner) => self.pointer_widths(inner),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}
