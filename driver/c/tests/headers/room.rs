//! The ABI room, and this library's own interface, read as source text.

use std::fs;
use std::path::Path;

use syn::parse::{ParseStream, Parser as _};
use syn::{
    Attribute, Expr, ExprLit, Fields, FnArg, Ident, Item, ItemFn, Lit, LitInt, Pat, ReturnType,
    Token, Type, TypeBareFn,
};

/// A declaration, with its documentation.
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) kind: Kind,
}

/// The kinds of declarations that a C header can have.
pub(crate) enum Kind {
    /// Another name of a type.
    Alias(Type),
    /// The type of a pointer to a function.
    Pointer(Signature),
    /// A function of the library.
    Function(Signature),
    Aggregate {
        union: bool,
        members: Vec<Member>,
    },
    /// A type of the library that C programs only have pointers to.
    Opaque,
    /// A C enumeration: here a transparent integer.
    Enumeration,
    Table(Vec<Member>),
    /// An object with the name of its dispatch table.
    Object(String),
    /// A constant of a type, with its value as a C literal.
    Constant(String, String),
}

/// The arguments and the result of a function.
pub(crate) struct Signature {
    pub(crate) arguments: Vec<Member>,
    pub(crate) result: Option<Type>,
}

/// A member, a slot or an argument.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) ty: Type,
}

/// Everything that some files declare for others, in their order.
#[derive(Default)]
pub(crate) struct Room(Vec<Declared>);

impl Room {
    /// The ABI room of the provider, and the MDL that it has from the edges' crate.
    pub(crate) fn of_the_provider() -> Self {
        let mut room = Self::default();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ["lib", "object", "dispatch", "sockaddr", "status"] {
            room.read(&root.join(format!("driver/abi/src/{file}.rs")));
        }
        let mut packets = Self::default();
        packets.read(&root.join("netadapter-glue/src/ndis/abi.rs"));
        packets.0.retain(|item| item.name == "MDL" || item.name.starts_with("MDL_"));
        room.0.append(&mut packets.0);
        room
    }

    /// The interface of this library.
    pub(crate) fn of_the_library() -> Self {
        let mut room = Self::default();
        room.read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api.rs"));
        room
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut room = Self::default();
        room.take(syn::parse_file(text).expect("Rust").items);
        room
    }

    /// All declarations.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Declared> {
        self.0.iter()
    }

    /// The declaration of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Declared> {
        self.all().find(|item| item.name == name)
    }

    fn read(&mut self, path: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.0.append(&mut Self::parse(&text).0);
    }

    fn take(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Type(item) => {
                    let kind = match *item.ty {
                        Type::BareFn(function) => pointer(&function),
                        other => Kind::Alias(other),
                    };
                    self.declare(&item.ident, &item.attrs, kind);
                }
                Item::Struct(item) => {
                    let kind = match &item.fields {
                        Fields::Unnamed(_) => Kind::Enumeration,
                        Fields::Named(_) if is_c(&item.attrs) => aggregate(&item.fields, false),
                        _ => Kind::Opaque,
                    };
                    self.declare(&item.ident, &item.attrs, kind);
                }
                Item::Union(item) => {
                    let kind = aggregate(&Fields::Named(item.fields), true);
                    self.declare(&item.ident, &item.attrs, kind);
                }
                Item::Const(item) if item.ident != "_" => {
                    if let (Type::Path(ty), Some(value)) = (*item.ty, literal(&item.expr)) {
                        let ty = ty.path.segments.last().expect("a name").ident.to_string();
                        self.declare(&item.ident, &item.attrs, Kind::Constant(ty, value));
                    }
                }
                Item::Fn(item) if item.sig.abi.is_some() => {
                    self.declare(&item.sig.ident, &item.attrs, function(&item));
                }
                Item::Macro(item) if item.ident.is_none() => self.invocation(&item.mac),
                _ => {}
            }
        }
    }

    fn declare(&mut self, name: &Ident, attributes: &[Attribute], kind: Kind) {
        self.0.push(Declared { name: name.to_string(), doc: doc(attributes), kind });
    }

    /// The macros by which the room declares. One that is not known here hides nothing: it fails.
    fn invocation(&mut self, mac: &syn::Macro) {
        let name = mac.path.segments.last().expect("a name").ident.to_string();
        let tokens = mac.tokens.clone();
        let mut declared = match name.as_str() {
            "layout" => Vec::new(),
            "table" => vec![table.parse2(tokens).expect("table!")],
            "objects" => objects.parse2(tokens).expect("objects!"),
            "statuses" => statuses.parse2(tokens).expect("statuses!"),
            _ => panic!("{name}! may declare something, and nothing here reads it"),
        };
        self.0.append(&mut declared);
    }
}

/// Whether a C program sees the members.
fn is_c(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.path().is_ident("repr").then(|| attribute.meta.require_list());
        list.is_some_and(|list| list.expect("repr(...)").tokens.to_string().starts_with('C'))
    })
}

fn aggregate(fields: &Fields, union: bool) -> Kind {
    let members = fields
        .iter()
        .map(|field| member(field.ident.as_ref().expect("a name"), &field.attrs, &field.ty));
    Kind::Aggregate { union, members: members.collect() }
}

fn member(name: &Ident, attributes: &[Attribute], ty: &Type) -> Member {
    Member { name: name.to_string(), doc: doc(attributes), ty: ty.clone() }
}

fn pointer(function: &TypeBareFn) -> Kind {
    let arguments = function.inputs.iter().map(|argument| {
        let (name, _) = argument.name.as_ref().expect("a name");
        member(name, &[], &argument.ty)
    });
    Kind::Pointer(Signature { arguments: arguments.collect(), result: result(&function.output) })
}

fn function(item: &ItemFn) -> Kind {
    let arguments = item.sig.inputs.iter().map(|argument| match argument {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(name) => member(&name.ident, &[], &argument.ty),
            _ => panic!("an argument without a name"),
        },
        FnArg::Receiver(_) => panic!("a method"),
    });
    Kind::Function(Signature { arguments: arguments.collect(), result: result(&item.sig.output) })
}

fn result(output: &ReturnType) -> Option<Type> {
    match output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some((**ty).clone()),
    }
}

/// The text of the doc comment.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let lines =
        lines.filter_map(|attribute| match &attribute.meta.require_name_value().ok()?.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// A number as C writes it: that of `5`, `NAME(5)` or `u32::MAX`. `None`: the value is computed, and no header has it.
fn literal(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            Some(number.token().to_string().replace('_', ""))
        }
        Expr::Call(call) if call.args.len() == 1 => literal(&call.args[0]),
        Expr::Path(path) if path.path.segments.last()?.ident == "MAX" => Some("0xFFFFFFFF".into()),
        _ => None,
    }
}

/// `/// doc NAME, size { 0 Member: Type, ... }`
fn table(input: ParseStream<'_>) -> syn::Result<Declared> {
    let attributes = input.call(Attribute::parse_outer)?;
    let name: Ident = input.parse()?;
    input.parse::<Token![,]>()?;
    input.parse::<LitInt>()?;
    let slots;
    syn::braced!(slots in input);
    let slots = slots.parse_terminated(
        |slot| {
            slot.parse::<LitInt>()?;
            let name: Ident = slot.parse()?;
            slot.parse::<Token![:]>()?;
            Ok(member(&name, &[], &slot.parse()?))
        },
        Token![,],
    )?;
    let kind = Kind::Table(slots.into_iter().collect());
    Ok(Declared { name: name.to_string(), doc: doc(&attributes), kind })
}

/// `/// doc NAME: Kind, TABLE; ...`
fn objects(input: ParseStream<'_>) -> syn::Result<Vec<Declared>> {
    let objects = input.parse_terminated(
        |object| {
            let attributes = object.call(Attribute::parse_outer)?;
            let name: Ident = object.parse()?;
            object.parse::<Token![:]>()?;
            object.parse::<Ident>()?;
            object.parse::<Token![,]>()?;
            let kind = Kind::Object(object.parse::<Ident>()?.to_string());
            Ok(Declared { name: name.to_string(), doc: doc(&attributes), kind })
        },
        Token![;],
    )?;
    Ok(objects.into_iter().collect())
}

/// `NAME = number, ...`
fn statuses(input: ParseStream<'_>) -> syn::Result<Vec<Declared>> {
    let statuses = input.parse_terminated(
        |status| {
            let name: Ident = status.parse()?;
            status.parse::<Token![=]>()?;
            let number = status.parse::<LitInt>()?.token().to_string().replace('_', "");
            let kind = Kind::Constant("NTSTATUS".into(), number);
            Ok(Declared { name: name.to_string(), doc: String::new(), kind })
        },
        Token![,],
    )?;
    Ok(statuses.into_iter().collect())
}
