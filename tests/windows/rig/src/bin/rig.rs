//! Runs one scenario against an image in this process: `rig IMAGE SCENARIO`.

#[cfg(all(unix, target_arch = "x86_64"))]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(image), Some(scenario)) = (arguments.next(), arguments.next()) else {
        panic!("rig IMAGE SCENARIO");
    };
    rig::scenarios::run(&scenario, &rig::loader::Loader::new(image.into()));
}

#[cfg(not(all(unix, target_arch = "x86_64")))]
fn main() {}
