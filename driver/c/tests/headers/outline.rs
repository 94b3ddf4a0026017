//! Headers from their outlines: text of C, with lines that say which declarations stand there.
//!
//! | Line | Stands for |
//! | --- | --- |
//! | `@item NAME ...` | these declarations |
//! | `@constants PREFIX` | all constants whose names begin so |
//! | `@statuses` | all status codes |
//! | `@handles` | the names of all objects |
//! | `@pointers`, `@tables`, `@objects`, `@functions` | all of a kind, in the order of the room |

use crate::render::{array_len, declaration, is_anonymous};
use crate::room::{Declared, Kind, Member, Room};

/// Members that C has under another name, as they are unions there.
const C_NAMES: &[(&str, &str)] = &[("S_un_b", "S_un"), ("Byte", "u")];

/// The header of an outline.
pub(crate) fn header(outline: &str, room: &Room) -> String {
    let mut text = String::new();
    for line in outline.lines() {
        match line.strip_prefix('@') {
            Some(directive) => text += &expand(directive, room),
            None => text += &format!("{line}\n"),
        }
    }
    text
}

fn expand(directive: &str, room: &Room) -> String {
    let mut words = directive.split_whitespace();
    let word = words.next().expect("a word behind @");
    let names: Vec<_> = words.collect();
    match word {
        "item" => names
            .iter()
            .map(|name| {
                let item = room.get(name).unwrap_or_else(|| panic!("the room has no {name}"));
                declaration(item, room)
            })
            .collect::<Vec<_>>()
            .join("\n"),
        "constants" => all(room, "", |item| {
            matches!(&item.kind, Kind::Constant(..)) && item.name.starts_with(names[0])
        }),
        "statuses" => all(room, "", |item| match &item.kind {
            Kind::Constant(ty, _) => ty.ends_with("STATUS"),
            _ => false,
        }),
        "handles" => {
            let objects = room.all().filter(|item| matches!(item.kind, Kind::Object(_)));
            objects.map(|item| format!("typedef struct _{0} {0};\n", item.name)).collect()
        }
        "pointers" => all(room, "\n", |item| matches!(item.kind, Kind::Pointer(_))),
        "tables" => all(room, "\n", |item| matches!(item.kind, Kind::Table(_))),
        "objects" => all(room, "\n", |item| matches!(item.kind, Kind::Object(_))),
        "functions" => all(room, "\n", |item| matches!(item.kind, Kind::Function(_))),
        _ => panic!("@{directive} stands for nothing"),
    }
}

fn all(room: &Room, between: &str, is_wanted: impl Fn(&Declared) -> bool) -> String {
    let wanted = room.all().filter(|item| is_wanted(item));
    wanted.map(|item| declaration(item, room)).collect::<Vec<_>>().join(between)
}

/// Source text in Rust that lists sizes, members and constants, for the compiler to fill in.
pub(crate) fn facts(rooms: &[&Room], left_out: &str) -> String {
    let items = rooms.iter().flat_map(|room| room.all()).filter(|item| item.name != left_out);
    let lines: Vec<_> = items.flat_map(of).collect();
    let lines: String = lines.iter().map(|line| format!("        {line},\n")).collect();
    format!(
        "//! Written by `HEADERS=write cargo test -p ndk-c --test headers`.\n\n\
         use super::{{Fact, constant, member, place, size, trailing}};\n\
         use driver::abi::*;\n\
         use ndk_c::*;\n\n\
         /// Everything that the headers declare.\n\
         #[rustfmt::skip]\n\
         pub(crate) fn facts() -> Vec<Fact> {{\n    vec![\n{lines}    ]\n}}\n"
    )
}

/// The facts of one declaration.
fn of(item: &Declared) -> Vec<String> {
    let name = &item.name;
    match &item.kind {
        Kind::Alias(_) | Kind::Enumeration => vec![format!("size!({name})")],
        Kind::Constant(..) => vec![format!("constant!({name})")],
        Kind::Pointer(_) | Kind::Function(_) | Kind::Opaque => Vec::new(),
        Kind::Object(_) => vec![
            format!("size!({name})"),
            format!("member!({name}, Header, \"Header\")"),
            format!("member!({name}, Dispatch, \"Dispatch\")"),
        ],
        Kind::Table(members) => aggregate(name, members, "member"),
        // A member of a union cannot be asked for its size by safe code.
        Kind::Aggregate { union: true, members } => aggregate(name, members, "place"),
        Kind::Aggregate { members, .. } => aggregate(name, members, "member"),
    }
}

fn aggregate(name: &str, members: &[Member], of_member: &str) -> Vec<String> {
    let is_trailing = |member: &Member| array_len(&member.ty) == Some("0");
    let size = match members.last() {
        Some(last) if is_trailing(last) => format!("trailing!({name})"),
        _ => format!("size!({name})"),
    };
    let mut facts = vec![size];
    for member in members {
        let rust = &member.name;
        let of_member = if is_trailing(member) { "place" } else { of_member };
        if is_anonymous(&member.ty) {
            for c in ["VirtualAddress", "LogicalAddress"] {
                facts.push(format!("{of_member}!({name}, {rust}, \"{c}\")"));
            }
            continue;
        }
        let c = C_NAMES.iter().find(|(of, _)| of == rust).map_or(rust.as_str(), |(_, c)| c);
        facts.push(format!("{of_member}!({name}, {rust}, \"{c}\")"));
    }
    facts
}
