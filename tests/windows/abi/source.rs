//! Declarations as source text: constants, types, functions and asserted layouts of Rust files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, Expr, Fields, Ident, Item, LitInt, LitStr, Signature, Token, Type};

/// A structure or a union, as declared.
#[derive(Clone)]
pub(crate) struct Aggregate {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) union: bool,
    pub(crate) members: Vec<(String, Type)>,
}

#[derive(Clone)]
pub(crate) enum Named {
    Alias(Box<Type>),
    Aggregate(Aggregate),
}

/// What `layout!` asserts at compile time: a name, a size, members at offsets.
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) offsets: Vec<(String, u64)>,
}

// Rust's names of processors.
pub(crate) const X86_64: &str = "x86_64";
pub(crate) const AARCH64: &str = "aarch64";

/// A function and the module that has it.
pub(crate) struct Function {
    pub(crate) module: String,
    pub(crate) signature: Signature,
}

/// Everything that some files declare. A name may have several declarations in `windows-sys`.
pub(crate) struct Declarations {
    /// Rust's name of the processor that they are for.
    processor: &'static str,
    pub(crate) constants: BTreeMap<String, Vec<(Type, Expr)>>,
    pub(crate) types: BTreeMap<String, Named>,
    pub(crate) functions: BTreeMap<String, Vec<Function>>,
    pub(crate) layouts: Vec<Layout>,
}

impl Declarations {
    /// Those of the driver, that is of all the files that declare what Windows' headers do.
    pub(crate) fn of_the_driver() -> Self {
        let root = Path::new(tests::ROOT);
        let mut all = Self::none_for(X86_64);
        for room in [
            "driver/abi/src",
            "driver/ndis/src/abi",
            "driver/flight/image/src/winsock.rs",
            "netadapter-glue/src/ndis/abi.rs",
        ] {
            all.read(&root.join(room));
        }
        all
    }

    /// Those of `windows-sys`, which Microsoft generates from its own metadata.
    pub(crate) fn of_windows_sys(processor: &'static str) -> Self {
        let mut all = Self::none_for(processor);
        for room in [
            "Win32/Foundation",
            "Win32/NetworkManagement/IpHelper",
            "Win32/NetworkManagement/Ndis",
            "Win32/Networking/WinSock",
            "Win32/Security/Cryptography",
            "Win32/System/Diagnostics/Debug",
            "Win32/System/Diagnostics/Etw",
            "Win32/System/Kernel",
            "Win32/System/SystemInformation",
            "Win32/System/SystemServices",
            "Win32/System/Threading",
            "Wdk",
        ] {
            all.read(&windows_sys().join("src/Windows").join(room));
        }
        all.read(&windows_sys().join("src/core"));
        all
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self::parse_for(X86_64, text)
    }

    pub(crate) fn parse_for(processor: &'static str, text: &str) -> Self {
        let mut all = Self::none_for(processor);
        all.take(syn::parse_file(text).expect("Rust").items);
        all
    }

    fn none_for(processor: &'static str) -> Self {
        Self {
            processor,
            constants: BTreeMap::new(),
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            layouts: Vec::new(),
        }
    }

    /// What is imported: `module!function`.
    pub(crate) fn imports(&self) -> impl Iterator<Item = String> {
        let all = self.functions.values().flatten();
        all.map(|one| format!("{}!{}", one.module, one.signature.ident))
    }

    fn read(&mut self, path: &Path) {
        if path.is_dir() {
            let mut inside: Vec<_> =
                fs::read_dir(path).expect("a folder").map(|entry| entry.unwrap().path()).collect();
            inside.sort();
            inside.iter().for_each(|path| self.read(path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).expect("a file");
            let file = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            self.take(file.items);
        }
    }

    fn take(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Mod(module) if self.compiles(&module.attrs) => {
                    self.take(module.content.map(|(_, items)| items).unwrap_or_default());
                }
                Item::Const(constant)
                    if constant.ident != "_" && self.compiles(&constant.attrs) =>
                {
                    let named = self.constants.entry(constant.ident.to_string()).or_default();
                    named.push((*constant.ty, *constant.expr));
                }
                Item::Type(alias) if self.compiles(&alias.attrs) => {
                    self.name(&alias.ident, Named::Alias(alias.ty));
                }
                Item::Struct(item) if self.compiles(&item.attrs) => {
                    self.aggregate(item.ident, item.attrs, false, item.fields);
                }
                Item::Union(item) if self.compiles(&item.attrs) => {
                    self.aggregate(item.ident, item.attrs, true, Fields::Named(item.fields));
                }
                Item::ForeignMod(block) if self.compiles(&block.attrs) => self.import(block),
                Item::Macro(invocation) if self.compiles(&invocation.attrs) => {
                    self.invocation(&invocation.mac);
                }
                _ => {}
            }
        }
    }

    /// False for tests, for the other source of the kernel's declarations, and for other processors.
    fn compiles(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).all(|attribute| {
            let condition = attribute.meta.require_list().expect("cfg(...)").tokens.to_string();
            let other = condition.contains("target_arch")
                && !condition.contains(&format!("\"{}\"", self.processor));
            !(other || condition == "test" || condition == "feature = \"wdk\"")
        })
    }

    fn name(&mut self, ident: &Ident, named: Named) {
        // The first is kept: `windows-sys` declares some types of WinSock twice, and alike.
        self.types.entry(ident.to_string()).or_insert(named);
    }

    fn aggregate(&mut self, ident: Ident, attributes: Vec<Attribute>, union: bool, fields: Fields) {
        let members = fields.into_iter().enumerate().map(|(index, field)| {
            (field.ident.map_or_else(|| index.to_string(), |ident| ident.to_string()), field.ty)
        });
        let members = members.collect();
        self.name(&ident, Named::Aggregate(Aggregate { attributes, union, members }));
    }

    fn import(&mut self, block: syn::ItemForeignMod) {
        let module = block
            .attrs
            .iter()
            .find(|attribute| attribute.path().is_ident("link"))
            .map(|link| link.parse_args_with(link_name).expect("#[link(name = ...)]"));
        for item in block.items {
            if let (syn::ForeignItem::Fn(function), Some(module)) = (item, &module) {
                self.function(module, function.sig);
            }
        }
    }

    fn function(&mut self, module: &str, signature: Signature) {
        let function = Function { module: module.to_lowercase(), signature };
        self.functions.entry(function.signature.ident.to_string()).or_default().push(function);
    }

    /// The macros by which declarations are written. One that is not known here hides nothing: it fails.
    fn invocation(&mut self, mac: &syn::Macro) {
        let name = mac.path.segments.last().expect("a name").ident.to_string();
        let tokens = mac.tokens.clone();
        match name.as_str() {
            "layout" => self.layouts.push(layout.parse2(tokens).expect("layout!")),
            "statuses" => {
                for (ident, value) in statuses.parse2(tokens).expect("statuses!") {
                    let ty = syn::parse_quote!(NTSTATUS);
                    self.constants.entry(ident.to_string()).or_default().push((ty, value));
                }
            }
            "functions" => {
                let (module, functions) = functions.parse2(tokens).expect("functions!");
                functions.into_iter().for_each(|function| self.function(&module, function));
            }
            "link" => {
                let (module, signature) = link.parse2(tokens).expect("link!");
                self.function(&module, signature);
            }
            // Objects and dispatch tables of NDK, which assert their layouts themselves; `windows-sys` has none.
            "table" | "objects" | "macro_rules" => {}
            // Traits of COM, of which the driver has none.
            "imp" | "define_interface" | "interface_hierarchy" => {}
            _ => panic!("{name}! may declare something, and nothing here reads it"),
        }
    }
}

fn link_name(input: ParseStream<'_>) -> syn::Result<String> {
    let mut found = String::new();
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let value: LitStr = input.parse()?;
        if key == "name" {
            found = value.value();
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(found)
}

fn layout(input: ParseStream<'_>) -> syn::Result<Layout> {
    let name = input.parse::<Ident>()?.to_string();
    input.parse::<Token![,]>()?;
    let size = input.parse::<LitInt>()?.base10_parse()?;
    let inside;
    syn::braced!(inside in input);
    let mut offsets = Vec::new();
    while !inside.is_empty() {
        let member = inside.parse::<Ident>()?.to_string();
        inside.parse::<Token![:]>()?;
        offsets.push((member, inside.parse::<LitInt>()?.base10_parse()?));
        inside.parse::<Option<Token![,]>>()?;
    }
    Ok(Layout { name, size, offsets })
}

fn statuses(input: ParseStream<'_>) -> syn::Result<Vec<(Ident, Expr)>> {
    let mut all = Vec::new();
    while !input.is_empty() {
        let ident = input.parse()?;
        input.parse::<Token![=]>()?;
        all.push((ident, input.parse()?));
        input.parse::<Token![,]>()?;
    }
    Ok(all)
}

fn functions(input: ParseStream<'_>) -> syn::Result<(String, Vec<Signature>)> {
    let module: LitStr = input.parse()?;
    input.parse::<Token![:]>()?;
    let mut all = Vec::new();
    while !input.is_empty() {
        Attribute::parse_outer(input)?;
        all.push(Signature::parse(input)?);
        input.parse::<Token![;]>()?;
    }
    Ok((module.value(), all))
}

fn link(input: ParseStream<'_>) -> syn::Result<(String, Signature)> {
    let module: LitStr = input.parse()?;
    input.parse::<LitStr>()?;
    Attribute::parse_outer(input)?;
    Ok((module.value(), input.parse()?))
}

/// Where cargo keeps the sources of `windows-sys`, as `Cargo.lock` has it. A machine that is new has not fetched all that this
/// names, so cargo may have to.
fn windows_sys() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    let output = cargo.current_dir(tests::ROOT).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "windows-sys");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    Path::new(manifest.expect("windows-sys is in Cargo.lock")).parent().unwrap().to_owned()
}
