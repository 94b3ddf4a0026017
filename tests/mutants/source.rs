//! Rust source as a tree whose nodes know their bytes: the functions that are not tests.

use proc_macro2::Span;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function outside the tests.
pub(crate) struct Function {
    /// The type or trait that it belongs to, and its name.
    pub(crate) path: String,
    /// Its body with the braces, in bytes.
    pub(crate) body: Range<usize>,
    pub(crate) signature: syn::Signature,
    pub(crate) block: syn::Block,
}

/// The bytes of a node in its file.
pub(crate) fn bytes(span: Span) -> Range<usize> {
    span.byte_range()
}

/// The sources that bugs are put into.
pub(crate) const WOVEN: [&str; 3] = ["rocev2/src", "driver/src", "netadapter-glue/src"];

/// Every Rust file below [`WOVEN`] but the tests.
pub(crate) fn woven(root: &Path) -> Vec<String> {
    WOVEN.iter().flat_map(|directory| files(root, directory)).collect()
}

/// Every Rust file below `root`'s `directory` but the tests, sorted.
pub(crate) fn files(root: &Path, directory: &str) -> Vec<String> {
    let (mut files, mut left) = (Vec::new(), vec![root.join(directory)]);
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let is_test = |stem: &OsStr| stem == "tests" || stem.to_string_lossy().starts_with("loom_");
        paths.retain(|path| !path.file_stem().is_some_and(is_test));
        for path in paths {
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The functions of a file, in order, without those inside others.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let file = syn::parse_file(text).expect("the source parses");
    let mut finder = Finder::default();
    finder.visit_file(&file);
    finder.found
}

#[derive(Default)]
struct Finder {
    owner: String,
    found: Vec<Function>,
}

impl Finder {
    fn add(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &syn::Signature,
        block: &syn::Block,
    ) {
        // Two bodies that return closures are of two types.
        let opaque = match &signature.output {
            syn::ReturnType::Type(_, output) => matches!(**output, syn::Type::ImplTrait(_)),
            syn::ReturnType::Default => false,
        };
        if is_test(attributes) || opaque {
            return;
        }
        self.found.push(Function {
            path: format!("{}{}", self.owner, signature.ident),
            body: bytes(block.span()),
            signature: signature.clone(),
            block: block.clone(),
        });
    }
}

/// Whether it is not part of the product.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && is_for_tests(&list.tokens),
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(_) => false,
    })
}

/// `test`, or all of several of which that is one; `tsan`, as no suite is built with ThreadSanitizer here.
fn is_for_tests(condition: &proc_macro2::TokenStream) -> bool {
    let condition = condition.to_string();
    let all = condition.strip_prefix("all").unwrap_or(&condition);
    all.trim_matches([' ', '(', ')']).split(',').any(|part| ["test", "tsan"].contains(&part.trim()))
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if is_test(&item.attrs) || of.is_some_and(|of| of.ident == "Debug" || of.ident == "Display")
        {
            return;
        }
        self.owner = name.map_or_else(String::new, |name| format!("{name}::"));
        visit::visit_item_impl(self, item);
        self.owner.clear();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.owner = format!("{}::", item.ident);
        visit::visit_item_trait(self, item);
        self.owner.clear();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.attrs, &item.sig, block);
        }
    }
}
