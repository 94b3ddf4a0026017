//! The image under test, loaded into this Linux process with the stand-ins.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::image::Image;
use crate::{Beside, Host, coverage};

/// An image file, and the image while it is loaded.
pub struct Loader {
    path: PathBuf,
    loaded: Mutex<Option<Image>>,
}

impl Loader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, loaded: Mutex::new(None) }
    }
}

impl Host for Loader {
    fn load(&self) -> Result<(), i32> {
        let mut image = Image::map(&self.path, crate::resolve);
        coverage::begin(image.base);
        let started = image.start("ndkrocev2");
        if started.is_err() {
            coverage::collect();
            image.unmap();
        } else {
            *self.loaded.lock().unwrap() = Some(image);
        }
        started
    }

    fn unload(&self) {
        let Some(mut image) = self.loaded.lock().unwrap().take() else { return };
        image.stop();
        coverage::collect();
        image.unmap();
    }

    fn load_beside(&self, service: &'static str, file: &str) -> Result<Beside, i32> {
        let mut image = Image::map(Path::new(file), crate::resolve);
        if let Err(status) = image.start(service) {
            image.unmap();
            return Err(status);
        }
        Ok(Box::new(move || {
            image.stop();
            image.unmap();
        }))
    }
}
