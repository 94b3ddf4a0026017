//! What the image takes of a kernel's stack.

mod aarch64;
mod chains;
pub(crate) mod frames;
mod joins;
mod panics;
mod x86_64;

use super::*;
use std::collections::BTreeMap;

/// The largest frame of a function.
const FRAME_MAX_LEN: u32 = 2048;
/// The deepest chain of calls, of a stack of 24 KiB that Windows' own calls share.
const CHAIN_MAX_LEN: u32 = 8192;

/// Goal: no function takes more of a kernel's stack of 24 KiB than [`FRAME_MAX_LEN`].
#[test]
fn its_frames_are_small() {
    for image in Image::x86_64().chain(Image::aarch64()) {
        let frames = frames::frames(&image.parse(), image);
        assert!(frames.len() > 50, "{} functions have unwind data", frames.len());
        let Some(names) = frames::names(&image.path, frames.iter().map(|frame| frame.function))
        else {
            return without_names();
        };
        let told = |frame: &frames::Frame| format!("{} {}", frame.len, names[&frame.function]);
        println!("{:?}: largest frame: {}", image.parse().architecture(), told(&frames[0]));
        let over: Vec<_> = frames::over(&frames, FRAME_MAX_LEN).iter().map(told).collect();
        assert!(over.is_empty(), "too large for a kernel's stack: {over:#?}");
    }
}

/// Goal: no chain of calls takes more of that stack than [`CHAIN_MAX_LEN`], whichever function it begins with.
#[test]
fn its_chains_are_short() {
    // The flight consumer calls tables of whatever provider it meets; the rig gives it a stack of a kernel's size.
    let images = Image::x86_64().filter(|image| image.kind != Kind::Flight);
    for image in images.chain(Image::aarch64()) {
        let (pe, guard, graph) = graph(image);
        let functions = graph.0.keys().copied();
        let Some(names) = frames::names(&image.path, functions.clone()) else {
            return without_names();
        };
        let (joins, recursions) = (joins::JOINS, joins::RECURSIONS);
        let chains = chains::Chains::new(&graph, &names, &guard.functions, joins, recursions);
        assert_eq!(chains.unjoined(), [""; 0], "they call through pointers, and no join says whom");
        let deepest = functions
            .map(|function| chains.from(function).unwrap_or_else(|circle| panic!("{circle:#?}")))
            .max_by_key(|chain| chain.len)
            .expect("functions");
        let told = |at: &u32| format!("{} {}", graph.0[at].frame, names[at]);
        let told: Vec<_> = deepest.functions.iter().map(told).collect();
        println!("{:?}: deepest chain: {} bytes, {told:#?}", pe.architecture(), deepest.len);
        assert!(deepest.len <= CHAIN_MAX_LEN, "too deep: {} bytes, {told:#?}", deepest.len);
    }
}

/// Goal: a panic is a bug check, so the places that the linker kept are counted, have reasons, and do not become more.
#[test]
fn its_panics_have_reasons() {
    let Some(image) = Image::x86_64().next() else { return };
    let (_, _, graph) = graph(image);
    let Some(names) = frames::names(&image.path, graph.0.keys().copied()) else {
        return without_names();
    };
    let sites = panics::sites(&graph, &names);
    let Some(places) = panics::places(&image.path, &sites) else { return without_names() };
    let mut kinds: BTreeMap<&str, Vec<&panics::Panic>> = BTreeMap::new();
    for place in &places {
        let kind = panics::Kind::of(&place.by).unwrap_or_else(|| panic!("{place:?} is of no kind"));
        kinds.entry(kind.name).or_default().push(place);
    }
    for kind in panics::BUDGET {
        let found = kinds.get(kind.name).map_or(0, Vec::len);
        println!("{}: {found} of {}; {}", kind.name, kind.most, kind.reason);
        let files = panics::by_file(kinds.get(kind.name).into_iter().flatten().copied());
        println!("{files:#?}");
        assert!(found <= kind.most, "{found} places that panic for {}, {}", kind.name, kind.most);
    }
}

/// The functions of an image, and where they lead.
fn graph(image: &Image) -> (PeFile64<'_>, Guard, chains::Graph) {
    let pe = image.parse();
    let (frames, code) = (frames::frames(&pe, image), pe.code_range());
    let iat = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_IAT).expect("imports");
    let iat = iat.virtual_address.get(LE)..iat.virtual_address.get(LE) + iat.size.get(LE);
    let guard = Guard::of(image, &pe);
    let slots = chains::Slots { imports: iat, guard: [guard.check, guard.dispatch] };
    let isa = chains::Isa { architecture: pe.architecture(), slots: &slots };
    let bytes = image.at(&pe, code.start, code.len());
    let graph = chains::Graph::read(bytes, code.start, &frames, &guard.functions, &isa);
    (pe, guard, graph)
}

fn without_names() {
    let _ = writeln!(io::stderr(), "skipped: the stack: no llvm-symbolizer names functions");
}
