//! Runs one scenario against an image in this process: `rig IMAGE SCENARIO [ARGUMENT...]`.

#[cfg(all(unix, target_arch = "x86_64"))]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().expect("rig IMAGE SCENARIO [ARGUMENT...]");
    let scenario: Vec<String> = arguments.collect();
    if let Some(folder) = std::env::var_os("IMAGE_PROFILES") {
        let file = format!("process-{}.profraw", std::process::id());
        rig::coverage::to_file(std::path::Path::new(&folder).join(file));
    }
    rig::scenarios::run(&scenario, &rig::loader::Loader::new(image.into()));
}

#[cfg(not(all(unix, target_arch = "x86_64")))]
fn main() {}
