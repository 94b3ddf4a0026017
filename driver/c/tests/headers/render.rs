//! Declarations as C writes them.

use syn::{Expr, ExprLit, GenericArgument, Lit, PathArguments, Type};

use crate::room::{Declared, Kind, Member, Room, Signature};

/// A union of the room whose members C sees as members of the structure around it.
const ANONYMOUS: &str = "NDK_SGE_ADDRESS";
/// Columns of a comment.
const COLUMNS: usize = 100;
/// Columns of a function in one line, without what stands around it.
const LINE: usize = COLUMNS - "typedef ;".len();

/// The text of one declaration.
pub(crate) fn declaration(item: &Declared, room: &Room) -> String {
    let name = &item.name;
    let text = match &item.kind {
        Kind::Alias(ty) => format!("typedef {};\n", declarator(ty, name)),
        Kind::Pointer(signature) => {
            format!("typedef {};\n", call(&format!("(*{name})"), signature))
        }
        Kind::Function(signature) => format!("{};\n", call(name, signature)),
        Kind::Opaque => format!("typedef struct {name} {name};\n"),
        Kind::Enumeration => format!("typedef enum _{name} {{\n{}}} {name};\n", values(name, room)),
        Kind::Aggregate { union, members } => {
            let keyword = if *union { "union" } else { "struct" };
            // The library's own names are those of C, not those of Windows.
            let tag = if name.starts_with("ndkrocev2") { "" } else { "_" };
            let members = list(members, room, "    ");
            format!("typedef {keyword} {tag}{name} {{\n{members}}} {name};\n")
        }
        Kind::Table(slots) => {
            format!("typedef struct _{name} {{\n{}}} {name};\n", list(slots, room, "    "))
        }
        Kind::Object(table) => {
            let members = format!("    NDK_OBJECT_HEADER Header;\n    const {table} *Dispatch;\n");
            format!("struct _{name} {{\n{members}}};\n")
        }
        Kind::Constant(ty, value) => format!("#define {name} {}\n", constant(ty, value)),
    };
    format!("{}{text}", comment(&item.doc, ""))
}

/// A status is an `int`; the other constants are plain numbers.
fn constant(ty: &str, value: &str) -> String {
    if ty.ends_with("STATUS") { format!("((NTSTATUS){value})") } else { value.to_string() }
}

/// The values of an enumeration.
fn values(name: &str, room: &Room) -> String {
    let values = room.all().filter_map(|item| match &item.kind {
        Kind::Constant(ty, value) if ty == name => Some(format!("    {} = {value}", item.name)),
        _ => None,
    });
    values.collect::<Vec<_>>().join(",\n") + "\n"
}

/// The members of a structure, a line each.
fn list(members: &[Member], room: &Room, indent: &str) -> String {
    let lines = members.iter().map(|member| {
        if is_anonymous(&member.ty) {
            let Some(Kind::Aggregate { members, .. }) = room.get(ANONYMOUS).map(|item| &item.kind)
            else {
                panic!("{ANONYMOUS} is a union")
            };
            let inner = list(members, room, &format!("{indent}    "));
            return format!("{indent}union {{\n{inner}{indent}}};\n");
        }
        let doc = comment(&member.doc, indent);
        format!("{doc}{indent}{};\n", declarator(&member.ty, &member.name))
    });
    lines.collect()
}

/// Whether C has the members of this type in place of a member.
pub(crate) fn is_anonymous(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(ANONYMOUS))
}

/// The length of an array type.
pub(crate) fn array_len(ty: &Type) -> Option<&str> {
    match ty {
        Type::Array(array) => match &array.len {
            Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) => Some(len.base10_digits()),
            _ => panic!("an array whose length is no literal"),
        },
        _ => None,
    }
}

/// A function, or a pointer to one: in one line, or with an argument a line.
fn call(name: &str, signature: &Signature) -> String {
    let arguments = signature.arguments.iter();
    let arguments = arguments.map(|argument| declarator(&argument.ty, &argument.name));
    let arguments: Vec<_> = arguments.collect();
    let with = |inside: &str| {
        let whole = format!("{name}({inside})");
        match &signature.result {
            Some(ty) => declarator(ty, &whole),
            None => format!("void {whole}"),
        }
    };
    let inside = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    let short = with(&inside);
    if short.len() <= LINE { short } else { with(&format!("\n    {}", arguments.join(",\n    "))) }
}

/// A name with its type: C writes one around the other.
fn declarator(ty: &Type, inner: &str) -> String {
    match ty {
        Type::Ptr(pointer) => {
            let qualifier = if pointer.const_token.is_some() { "const " } else { "" };
            format!("{qualifier}{}", declarator(&pointer.elem, &format!("*{inner}")))
        }
        Type::Array(array) => {
            // C before C99 had no array without elements, so the header has one.
            let len = array_len(ty).filter(|len| *len != "0").unwrap_or("1");
            declarator(&array.elem, &format!("{inner}[{len}]"))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a name");
            match &last.arguments {
                PathArguments::AngleBracketed(list) => match list.args.first() {
                    Some(GenericArgument::Type(inside)) => declarator(inside, inner),
                    _ => panic!("{} has no C spelling", last.ident),
                },
                _ => format!("{} {inner}", base(&last.ident.to_string())),
            }
        }
        _ => panic!("a type without a C spelling"),
    }
}

/// The name that C has for a type of one word.
fn base(name: &str) -> &str {
    match name {
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i16" => "int16_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "f64" => "double",
        "c_char" => "char",
        "c_void" => "void",
        name => name,
    }
}

/// A doc comment as a comment of C; nothing where there is none.
fn comment(doc: &str, indent: &str) -> String {
    let lines = wrap(&plain(doc), COLUMNS - indent.len() - 3);
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/* {line} */\n"),
        lines => {
            let lines = lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned());
            let lines: Vec<_> = lines.collect();
            format!("{indent}/*\n{}\n{indent} */\n", lines.join("\n"))
        }
    }
}

/// Markdown without its marks, and without the part that is for callers in Rust.
fn plain(doc: &str) -> String {
    let mut text = String::new();
    let mut is_for_rust = false;
    for line in doc.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            is_for_rust = heading == "Safety";
            continue;
        }
        if !is_for_rust {
            text += &unlinked(line);
            text.push('\n');
        }
    }
    text.trim_end().replace('`', "")
}

/// `[text](address)` and `[text]` as their text.
fn unlinked(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("[`") {
        out += before;
        let (text, after) = after.split_once("`]").expect("a link ends");
        out += text;
        rest = match after.strip_prefix('(') {
            Some(after) => after.split_once(')').expect("an address ends").1,
            None => after,
        };
    }
    out + rest
}

/// Paragraphs broken into lines of at most `columns`.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > columns {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines
}
