//! What the image takes of a kernel's stack.

mod aarch64;
mod chains;
pub(crate) mod frames;
mod joins;
mod x86_64;

use super::*;

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
    for image in Image::x86_64().chain(Image::aarch64()) {
        let pe = image.parse();
        let (frames, code) = (frames::frames(&pe, image), pe.code_range());
        let iat = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_IAT).expect("imports");
        let iat = iat.virtual_address.get(LE)..iat.virtual_address.get(LE) + iat.size.get(LE);
        let guard = Guard::of(image, &pe);
        let slots = chains::Slots { imports: iat, guard: [guard.check, guard.dispatch] };
        let isa = chains::Isa { architecture: pe.architecture(), slots: &slots };
        let bytes = image.at(&pe, code.start, code.len());
        let graph = chains::Graph::read(bytes, code.start, &frames, &guard.functions, &isa);
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

fn without_names() {
    let _ = writeln!(io::stderr(), "skipped: the stack: no llvm-symbolizer names functions");
}
