//! The chains of calls in the image: how deep a kernel's stack becomes, by the frames of [`super::frames`].
//!
//! A disassembler finds direct calls, and the jumps by which a function ends in another. A call through a pointer goes
//! by the guard, as the image has Control Flow Guard, and names nobody: [`Join`]s say whom each such function
//! may call, and one that no join has is an error. What Windows and consumers take is not counted: imports and their
//! callbacks are the end of a chain. Where the compiler has made one function of several equal ones, it has one name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use object::Architecture;

use super::frames::Frame;
use super::{aarch64, x86_64};

/// A function that calls through pointers, and those that it may reach so, by the beginnings of their names.
pub(crate) struct Join {
    pub(crate) from: &'static str,
    pub(crate) to: &'static [&'static str],
    /// Functions in between, which call on for everybody, and have joins of their own for the others.
    pub(crate) through: &'static [&'static str],
}

/// A call back into a chain, which happens so often at most.
pub(crate) struct Recursion {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) times: u32,
}

/// Where a pointer to a function may be read from by its address.
pub(crate) struct Slots {
    /// The addresses of imported functions.
    pub(crate) imports: Range<u32>,
    /// The guard's check and its dispatch.
    pub(crate) guard: [u32; 2],
}

/// Where an instruction leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next one, after a call of an import, too.
    On,
    /// To the next one, after a call of an address.
    Call(u32),
    /// There, or to the next one unless `always`.
    Branch { to: u32, always: bool },
    /// To the next one, after a call through a pointer that is not an import.
    ByPointer,
    /// Nowhere else, but through such a pointer.
    EndByPointer,
    /// Nowhere that is another function: a return, a trap, or a table of a `match`.
    End,
}

/// A function's frame, and where it goes.
#[derive(Debug)]
pub(crate) struct Function {
    end: u32,
    pub(crate) frame: u32,
    calls: BTreeSet<u32>,
    /// Where it ends in another function, which has its place on the stack then.
    jumps: BTreeSet<u32>,
    /// It calls through pointers that are not imports.
    pub(crate) by_pointer: bool,
    /// Where it leads away by an address: behind that instruction.
    pub(crate) sites: Vec<Site>,
}

/// An instruction that leads away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Site {
    /// Behind it.
    pub(crate) end: u32,
    /// Where it leads.
    pub(crate) to: u32,
}

/// The functions by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Graph(pub(crate) BTreeMap<u32, Function>);

impl Graph {
    /// Of `code`, which begins at `start`; `frames` are those of all functions that have one, `pointed` those that may be
    /// called through a pointer.
    pub(crate) fn read(
        code: &[u8],
        start: u32,
        frames: &[Frame],
        pointed: &BTreeSet<u32>,
        isa: &Isa<'_>,
    ) -> Self {
        let mut graph = Self::default();
        let mut todo: Vec<u32> = pointed.iter().copied().collect();
        for frame in frames {
            let (begin, end) = ((frame.function - start) as usize, (frame.end - start) as usize);
            let function = decode(&code[begin..end], frame.function, Some(frame.len), isa);
            todo.extend(function.calls.union(&function.jumps));
            graph.0.insert(frame.function, function);
        }
        // A function without a frame is found by those that call it. It ends before the next one that has one.
        while let Some(target) = todo.pop() {
            if graph.owner(target).is_none() {
                let end = graph
                    .0
                    .range(target..)
                    .next()
                    .map_or(code.len(), |(next, _)| (next - start) as usize);
                let function = decode(&code[(target - start) as usize..end], target, None, isa);
                todo.extend(function.calls.union(&function.jumps));
                graph.0.insert(target, function);
            }
        }
        graph
    }

    /// The function that an address is in.
    fn owner(&self, address: u32) -> Option<u32> {
        let (&begin, function) = self.0.range(..=address).next_back()?;
        (address < function.end).then_some(begin)
    }
}

/// Reads one function: all of `code`, or where it has no frame as far as its branches lead.
fn decode(code: &[u8], begin: u32, frame: Option<u32>, isa: &Isa<'_>) -> Function {
    let mut targets = BTreeSet::new();
    let mut function = Function {
        end: begin,
        frame: frame.unwrap_or(isa.leaf_len()),
        calls: BTreeSet::new(),
        jumps: BTreeSet::new(),
        by_pointer: false,
        sites: Vec::new(),
    };
    for (end, flow) in isa.flows(code, begin) {
        function.end = end;
        function.by_pointer |= matches!(flow, Flow::ByPointer | Flow::EndByPointer);
        if let Flow::Call(to) | Flow::Branch { to, .. } = flow {
            function.sites.push(Site { end, to });
        }
        match flow {
            Flow::Call(to) => drop(function.calls.insert(to)),
            Flow::Branch { to, .. } => drop(targets.insert(to)),
            Flow::On | Flow::ByPointer | Flow::EndByPointer | Flow::End => {}
        }
        let ends =
            matches!(flow, Flow::Branch { always: true, .. } | Flow::EndByPointer | Flow::End);
        let leads_on = targets.range(end..begin + code.len() as u32).next().is_some();
        if frame.is_none() && ends && !leads_on {
            break;
        }
    }
    let within = begin..function.end;
    function.jumps = targets.into_iter().filter(|target| !within.contains(target)).collect();
    function
}

/// A processor's instructions.
pub(crate) struct Isa<'a> {
    pub(crate) architecture: Architecture,
    pub(crate) slots: &'a Slots,
}

impl Isa<'_> {
    /// What a function without unwind data takes of the stack.
    fn leaf_len(&self) -> u32 {
        if self.architecture == Architecture::Aarch64 {
            aarch64::LEAF_LEN
        } else {
            x86_64::LEAF_LEN
        }
    }

    fn flows<'a>(
        &'a self,
        code: &'a [u8],
        begin: u32,
    ) -> Box<dyn Iterator<Item = (u32, Flow)> + 'a> {
        if self.architecture == Architecture::Aarch64 {
            Box::new(aarch64::flows(code, begin, self.slots))
        } else {
            Box::new(x86_64::flows(code, begin, self.slots))
        }
    }
}

/// A chain of calls, outermost first, and the stack that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) len: u32,
    pub(crate) functions: Vec<u32>,
}

/// The chains of a graph whose functions have names.
pub(crate) struct Chains<'a> {
    graph: &'a Graph,
    names: &'a BTreeMap<u32, String>,
    joins: &'a [Join],
    recursions: &'a [Recursion],
    /// Functions that may be called through a pointer.
    pointed: &'a BTreeSet<u32>,
    known: RefCell<BTreeMap<u32, Chain>>,
}

impl<'a> Chains<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        names: &'a BTreeMap<u32, String>,
        pointed: &'a BTreeSet<u32>,
        joins: &'a [Join],
        recursions: &'a [Recursion],
    ) -> Self {
        Self { graph, names, joins, recursions, pointed, known: RefCell::default() }
    }

    /// The functions that call through pointers without a join.
    pub(crate) fn unjoined(&self) -> Vec<&'a str> {
        let open = self.graph.0.iter().filter(|(begin, function)| {
            function.by_pointer && self.joins_of(**begin).next().is_none()
        });
        open.map(|(begin, _)| self.name(*begin)).collect()
    }

    fn name(&self, function: u32) -> &'a str {
        self.names.get(&function).map_or("?", |name| name)
    }

    /// Those of the longest name that fits.
    fn joins_of(&self, function: u32) -> impl Iterator<Item = &'a Join> {
        let name = self.name(function);
        let fitting = self.joins.iter().filter(move |join| name.starts_with(join.from));
        let longest = fitting.clone().map(|join| join.from.len()).max();
        fitting.filter(move |join| Some(join.from.len()) == longest)
    }

    /// The functions that one may call, and what of the stack is taken then.
    fn next(&self, from: u32) -> Vec<(u32, u32)> {
        let function = &self.graph.0[&from];
        let own = |target: &u32| {
            self.graph.owner(*target).filter(|owner| *owner != from || target == owner)
        };
        let calls = function.calls.iter().filter_map(own).map(|to| (to, function.frame));
        // It has left by then.
        let jumps = function.jumps.iter().filter_map(own).map(|to| (to, 0));
        let joins = function.by_pointer.then(|| self.joins_of(from)).into_iter().flatten();
        let joined = joins.flat_map(|join| {
            let taken = function.frame + self.between(join);
            self.pointed_by(join).map(move |to| (to, taken))
        });
        let all = calls.chain(jumps).chain(joined);
        all.filter(|(to, _)| !self.is_cut(from, *to)).collect()
    }

    fn pointed_by(&self, join: &'a Join) -> impl Iterator<Item = u32> {
        let called = |to: &u32| join.to.iter().any(|start| self.name(*to).starts_with(start));
        self.pointed.iter().filter_map(|to| self.graph.owner(*to)).filter(called)
    }

    /// The frames of the functions in between.
    fn between(&self, join: &Join) -> u32 {
        let frame = |start: &&str| {
            let named = self.graph.0.iter().filter(|(at, _)| self.name(**at).starts_with(start));
            named.map(|(_, function)| function.frame).max().expect("a function in between")
        };
        join.through.iter().map(frame).sum()
    }

    fn is_cut(&self, from: u32, to: u32) -> bool {
        self.recursions
            .iter()
            .any(|cut| self.name(from).starts_with(cut.from) && self.name(to).starts_with(cut.to))
    }

    /// The deepest chain that begins with a function.
    ///
    /// # Errors
    /// The names of functions that call each other in a circle.
    pub(crate) fn from(&self, function: u32) -> Result<Chain, Vec<&'a str>> {
        self.walk(function, &mut Vec::new())
    }

    fn walk(&self, function: u32, above: &mut Vec<u32>) -> Result<Chain, Vec<&'a str>> {
        if let Some(known) = self.known.borrow().get(&function) {
            return Ok(known.clone());
        }
        if let Some(at) = above.iter().position(|other| *other == function) {
            return Err(above[at..].iter().map(|function| self.name(*function)).collect());
        }
        above.push(function);
        let own = self.graph.0[&function].frame;
        let mut deepest = Chain { len: own, functions: Vec::new() };
        for (to, taken) in self.next(function) {
            let below = self.walk(to, above)?;
            let len = taken + below.len;
            if len > deepest.len {
                deepest = Chain { len, ..below };
            }
        }
        above.pop();
        deepest.len += self.repeats(function, &deepest);
        deepest.functions.insert(0, function);
        self.known.borrow_mut().insert(function, deepest.clone());
        Ok(deepest)
    }

    /// The recursions into a function add all of its chain again, which is more than the circle.
    fn repeats(&self, function: u32, chain: &Chain) -> u32 {
        let into = self.recursions.iter().filter(|cut| self.name(function).starts_with(cut.to));
        into.map(|cut| cut.times * chain.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Slots = Slots { imports: 0x9000..0x9100, guard: [0x8008, 0x8000] };

    const CALL: u8 = 0xe8;
    const JUMP: u8 = 0xe9;

    /// Functions of 16 bytes, with these frames: each calls the next one, or jumps there, and the last one is as it is
    /// told.
    fn seeded(frames: &[u32], goes: u8, last: &[u8]) -> Graph {
        let next = [goes, 11, 0, 0, 0, 0xc3];
        let body = |place: usize| if place + 1 < frames.len() { &next[..] } else { last };
        let bodies = frames.iter().enumerate().map(|(place, &len)| (len, body(place)));
        graph(&bodies.collect::<Vec<_>>())
    }

    /// Frames and bodies.
    fn graph(functions: &[(u32, &[u8])]) -> Graph {
        let mut code = vec![0xcc; 16 * functions.len()];
        let mut frames = Vec::new();
        for (place, &(len, body)) in functions.iter().enumerate() {
            code[16 * place..][..body.len()].copy_from_slice(body);
            let function = 0x1000 + 16 * place as u32;
            frames.push(Frame { function, end: function + 16, len });
        }
        let isa = Isa { architecture: Architecture::X86_64, slots: &SLOTS };
        Graph::read(&code, 0x1000, &frames, &BTreeSet::new(), &isa)
    }

    fn deepest(graph: &Graph, joins: &[Join], recursions: &[Recursion]) -> Result<u32, usize> {
        let names = (0..).zip(graph.0.keys()).map(|(at, function)| (*function, format!("f{at}")));
        let (names, pointed) = (names.collect(), graph.0.keys().copied().collect());
        let chains = Chains::new(graph, &names, &pointed, joins, recursions);
        assert!(chains.unjoined().is_empty(), "{:?}", chains.unjoined());
        chains.from(0x1000).map(|chain| chain.len).map_err(|circle| circle.len())
    }

    #[test]
    fn a_seeded_chain_is_found() {
        let frames = [3072, 2048, 2048, 2048];
        assert_eq!(deepest(&seeded(&frames, CALL, &[0xc3]), &[], &[]), Ok(9216));
        assert_eq!(deepest(&seeded(&frames, JUMP, &[0xc3]), &[], &[]), Ok(3072), "each has left");
    }

    /// call 0x1000, as the second function.
    const BACK: [u8; 6] = [0xe8, 0xeb, 0xff, 0xff, 0xff, 0xc3];

    #[test]
    fn a_circle_is_told_and_may_be_bounded() {
        let circle = seeded(&[100, 50], CALL, &BACK);
        assert_eq!(deepest(&circle, &[], &[]), Err(2));
        let twice = [Recursion { from: "f1", to: "f0", times: 2 }];
        assert_eq!(deepest(&circle, &[], &twice), Ok(450));
    }

    /// call [rip + 0x6ffa], the guard's slot, as the first function.
    const BY_POINTER: [u8; 7] = [0xff, 0x15, 0xfa, 0x6f, 0, 0, 0xc3];

    #[test]
    fn a_call_by_pointer_needs_a_join() {
        let graph = graph(&[(100, &BY_POINTER), (50, &[0xc3]), (7, &[0xc3])]);
        let join = |to, through| [Join { from: "f0", to, through }];
        assert_eq!(deepest(&graph, &join(&[], &[]), &[]), Ok(100), "to nobody of ours");
        assert_eq!(deepest(&graph, &join(&["f1"], &[]), &[]), Ok(150), "to the second");
        assert_eq!(deepest(&graph, &join(&["f1"], &["f2"]), &[]), Ok(157), "through the third");
        assert_eq!(deepest(&graph, &join(&["f"], &[]), &[]), Err(1), "to itself, too");
        let (names, pointed) = (BTreeMap::new(), BTreeSet::new());
        assert_eq!(Chains::new(&graph, &names, &pointed, &[], &[]).unjoined(), ["?"]);
    }
}
