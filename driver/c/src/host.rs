//! A provider on the edge that a string names, with faults and a record of the frames around it.

use crate::error::Error;
use driver::Provider;
use driver::abi::{NDK_ADAPTER, NDK_VERSION, NTSTATUS};
use ndk_consumer::{HostBuilder, Opener};
use ndk_verifier::Verifier;
use netadapter_glue::fault::Faults;
use netadapter_glue::host::EdgeSpec;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The verifiers of the process, for those who free memory: they do not know which provider has used it.
static VERIFIERS: Mutex<Vec<Weak<Verifier>>> = Mutex::new(Vec::new());

/// The wishes of a program.
pub(crate) struct Settings<'a> {
    pub(crate) edge: &'a str,
    pub(crate) addresses: &'a str,
    pub(crate) pcap: Option<&'a str>,
    /// Percent of the transmitted frames, as the three behind it.
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) corrupt: f64,
    pub(crate) seed: Option<u64>,
    /// As `ndk_verifier::Config` reads them.
    pub(crate) layers: &'a str,
}

/// A running provider, and the number of its open adapter instances.
pub(crate) struct Host {
    provider: Arc<Provider>,
    /// The provider, behind the layers.
    opener: Arc<dyn Opener>,
    /// The verifier among the layers.
    verifier: Option<Arc<Verifier>>,
    adapters: AtomicUsize,
}

impl Host {
    pub(crate) fn start(settings: &Settings<'_>) -> Result<Self, Error> {
        let addresses = addresses(settings.addresses)?;
        let faults = faults(settings)?;
        let spec: EdgeSpec = settings
            .edge
            .parse()
            .map_err(|source| Error::Edge { edge: settings.edge.into(), source })?;
        let layers =
            settings.layers.parse::<ndk_verifier::Config>()?.named(addresses[0].to_string());
        let mut builder = HostBuilder::new(addresses)
            .faults(faults)
            .configure(|config| config.seed = settings.seed.map(bytes_of));
        if let Some(file) = settings.pcap {
            builder = builder.capture(file);
        }
        let (provider, opener) = builder.provider(&spec)?;
        let (opener, verifier) = ndk_verifier::wrap(opener, layers);
        verifiers().extend(verifier.as_ref().map(Arc::downgrade));
        Ok(Self { provider, opener, verifier, adapters: AtomicUsize::new(0) })
    }

    pub(crate) fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let adapter = self.opener.open(version)?;
        self.adapters.fetch_add(1, Ordering::Relaxed);
        Ok(adapter)
    }

    /// Closes an adapter instance.
    ///
    /// # Safety
    /// It was opened here and is not closed yet; nothing uses it any more.
    #[allow(unsafe_code, reason = "the consumer's pointer is the object")]
    pub(crate) unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller's promise.
        unsafe { self.opener.close(adapter) };
        self.adapters.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn objects(&self) -> usize {
        self.provider.open_objects()
    }

    pub(crate) fn adapters(&self) -> usize {
        self.adapters.load(Ordering::Relaxed)
    }

    /// The reports of the verifier that are mistakes; 0 without one.
    pub(crate) fn mistakes(&self) -> usize {
        let reports = self.verifier.as_ref().map(|verifier| verifier.reports());
        let reports = reports.iter().flatten();
        reports.filter(|report| report.rule.is_mistake()).count()
    }

    pub(crate) fn set_addresses(&self, text: &str) -> Result<(), Error> {
        self.provider.set_addresses(addresses(text)?);
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let own = self.verifier.as_ref().map(Arc::as_ptr);
        verifiers().retain(|verifier| Some(verifier.as_ptr()) != own);
    }
}

fn verifiers() -> MutexGuard<'static, Vec<Weak<Verifier>>> {
    VERIFIERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the verifiers that the consumer frees memory. With the list held: so a host that ends waits, and
/// its provider never ends here, perhaps on its own thread.
pub(crate) fn freed(memory: *const u8, len: usize) {
    for verifier in verifiers().iter().filter_map(Weak::upgrade) {
        verifier.freed(memory, len);
    }
}

/// Addresses with commas between them.
fn addresses(text: &str) -> Result<Vec<IpAddr>, Error> {
    text.split(',').map(address).collect()
}

/// An address that one host on a network can have.
fn address(text: &str) -> Result<IpAddr, Error> {
    let ip = text.trim().parse::<IpAddr>().ok().filter(|ip| {
        let broadcast = *ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || broadcast)
    });
    ip.ok_or_else(|| Error::Address(text.into()))
}

/// The faults that a program asks for; `None`: frames pass untouched.
fn faults(settings: &Settings<'_>) -> Result<Option<Faults>, Error> {
    let share = |name, percent: f64| match percent {
        0.0..=100.0 => Ok(percent / 100.0),
        _ => Err(Error::Percent(name)),
    };
    let faults = Faults {
        seed: settings.seed.unwrap_or_else(random),
        loss: share("loss", settings.loss)?,
        duplicate: share("duplicate", settings.duplicate)?,
        reorder: share("reorder", settings.reorder)?,
        corrupt: share("corrupt", settings.corrupt)?,
        ..Faults::default()
    };
    let is_any = [faults.loss, faults.duplicate, faults.reorder, faults.corrupt] != [0.0; 4];
    Ok(is_any.then_some(faults))
}

/// A seed that nobody has given.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The seed of a provider.
fn bytes_of(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings<'_> = Settings {
        edge: "memory:host",
        addresses: "10.0.0.1, fd00::1",
        pcap: None,
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        seed: None,
        layers: "",
    };

    fn refused(settings: &Settings<'_>) -> String {
        Host::start(settings).err().expect("it is refused").to_string()
    }

    #[test]
    fn an_adapter_is_counted_while_it_is_open() {
        let host = Host::start(&SETTINGS).unwrap();
        let adapter = host.open(NDK_VERSION { Major: 2, Minor: 0 }).unwrap();
        assert_eq!((host.adapters(), host.objects()), (1, 1));
        // SAFETY: it is open, and nothing uses it.
        #[allow(unsafe_code, reason = "closes what it has opened")]
        unsafe {
            host.close(adapter);
        };
        assert_eq!((host.adapters(), host.objects()), (0, 0));
        assert!(host.open(NDK_VERSION { Major: 3, Minor: 0 }).is_err());
        assert_eq!(host.adapters(), 0);
    }

    #[test]
    fn a_mistake_is_told_in_words() {
        let told = refused(&Settings { edge: "cable:x", ..SETTINGS });
        assert!(told.starts_with("edge cable:x: not one of memory:NAME"), "{told}");
        let told = refused(&Settings { addresses: "10.0.0.1,127.0.0.1", ..SETTINGS });
        assert_eq!(told, "127.0.0.1 is not the address of a host");
        for percent in [-1.0, 100.1, f64::NAN] {
            assert_eq!(
                refused(&Settings { reorder: percent, ..SETTINGS }),
                "reorder is not a percentage"
            );
        }
        let told = refused(&Settings { layers: "explore=x", ..SETTINGS });
        assert!(told.starts_with("layers: `explore=x`"), "{told}");
        let told = refused(&Settings { pcap: Some("/no/such/folder/x.pcap"), ..SETTINGS });
        assert!(told.starts_with("/no/such/folder/x.pcap: "), "{told}");
    }

    #[test]
    fn faults_are_shares() {
        let settings = Settings { loss: 2.0, seed: Some(7), ..SETTINGS };
        let faults = faults(&settings).unwrap().unwrap();
        assert_eq!((faults.loss, faults.reorder, faults.seed), (0.02, 0.0, 7));
        assert_eq!(super::faults(&SETTINGS).unwrap(), None);
    }
}
