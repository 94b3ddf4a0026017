//! The smallest images that have tables of names.

/// The only section's address in memory, and in the file.
const ADDRESS: u32 = 0x1000;
const OFFSET: u32 = 0x200;

/// An image for this processor, which imports `(module, names)` and exports names.
pub(super) fn build(machine: u16, imports: &[(&str, &[&str])], exports: &[&str]) -> Vec<u8> {
    let mut section = Section(Vec::new());
    let exported = section.exports(exports);
    let imported = section.imports(imports);
    let len = section.0.len() as u32;
    let mut file = b"MZ".to_vec();
    file.resize(0x3c, 0);
    file.extend(0x40_u32.to_le_bytes());
    file.extend(b"PE\0\0");
    file.extend(machine.to_le_bytes());
    file.extend(1_u16.to_le_bytes());
    file.resize(file.len() + 12, 0);
    file.extend(240_u16.to_le_bytes());
    file.extend(0x2022_u16.to_le_bytes());
    let optional = file.len();
    file.extend(0x20b_u16.to_le_bytes());
    file.resize(optional + 108, 0);
    file[optional + 32..][..4].copy_from_slice(&0x1000_u32.to_le_bytes());
    file[optional + 36..][..4].copy_from_slice(&0x200_u32.to_le_bytes());
    file.extend(16_u32.to_le_bytes());
    for (address, len) in [exported, imported] {
        file.extend(address.to_le_bytes());
        file.extend(len.to_le_bytes());
    }
    file.resize(optional + 240, 0);
    file.extend(b".rdata\0\0");
    for word in [len, ADDRESS, len, OFFSET, 0, 0, 0, 0x4000_0040] {
        file.extend(u32::to_le_bytes(word));
    }
    file.resize(OFFSET as usize, 0);
    file.extend(section.0);
    file
}

struct Section(Vec<u8>);

impl Section {
    /// Adds bytes; their address.
    fn add(&mut self, bytes: &[u8]) -> u32 {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let address = ADDRESS + self.0.len() as u32;
        self.0.extend(bytes);
        address
    }

    fn words(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.add(&bytes)
    }

    /// The address and length of the directory; neither where it has nothing.
    fn exports(&mut self, names: &[&str]) -> (u32, u32) {
        if names.is_empty() {
            return (0, 0);
        }
        let directory = self.add(&[0; 40]);
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        let texts: Vec<_> =
            sorted.iter().map(|name| self.add(format!("{name}\0").as_bytes())).collect();
        let count = sorted.len() as u32;
        // Of no code: outside of the directory, where a forwarder would be.
        let functions = self.words(&vec![0x10; sorted.len()]);
        let names = self.words(&texts);
        let ordinals: Vec<u8> = (0..sorted.len() as u16).flat_map(u16::to_le_bytes).collect();
        let ordinals = self.add(&ordinals);
        let module = self.add(b"module\0");
        let head = [0, 0, 0, module, 1, count, count, functions, names, ordinals];
        let head: Vec<u8> = head.iter().copied().flat_map(u32::to_le_bytes).collect();
        let at = (directory - ADDRESS) as usize;
        self.0[at..at + 40].copy_from_slice(&head);
        // All of it lies in the directory.
        (directory, self.0.len() as u32 - (directory - ADDRESS))
    }

    fn imports(&mut self, modules: &[(&str, &[&str])]) -> (u32, u32) {
        if modules.is_empty() {
            return (0, 0);
        }
        let mut descriptors = Vec::new();
        for (module, names) in modules {
            let mut thunks: Vec<u8> = Vec::new();
            for name in *names {
                // Behind a hint.
                let text = self.add(format!("\0\0{name}\0").as_bytes());
                thunks.extend(u64::from(text).to_le_bytes());
            }
            thunks.extend([0; 8]);
            let thunks = self.add(&thunks);
            let module = self.add(format!("{module}\0").as_bytes());
            descriptors.extend([thunks, 0, 0, module, thunks]);
        }
        descriptors.extend([0; 5]);
        let directory = self.words(&descriptors);
        (directory, 4 * descriptors.len() as u32)
    }
}
