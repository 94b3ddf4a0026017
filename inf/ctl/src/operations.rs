//! The machine's operations by name, for machines that stand around another one.

/// Calls `$with` with all operations. Before each stands its owner under Wine: `windows` has it there, too; `file` stands in;
/// `wine` needs help (`split.rs`).
macro_rules! operations {
    ($with:ident) => {
        $with! {
            reads {
                windows fn host() -> Result<Host>;
                file fn nics() -> Result<Vec<Nic>>;
                file fn bound(nic: &str, component: &str) -> Result<Option<bool>>;
                file fn ip_settings(adapter: &str) -> Result<IpSettings>;
                windows fn signer(catalog: &Path) -> Result<Certificate>;
                windows fn trusts(store: Store, thumbprint: &str) -> Result<bool>;
                windows fn staged(inf: Inf) -> Result<Vec<String>>;
                windows fn published(published: &str) -> Result<Vec<u8>>;
                file fn has_protocol() -> Result<bool>;
                windows fn devices() -> Result<Vec<String>>;
                file fn vnic(device: &str) -> Result<Option<Vnic>>;
                windows fn keyword(device: &str, name: &str) -> Result<Option<String>>;
                windows fn snapshot() -> Result<Option<Vec<u8>>>;
                windows fn stages() -> Result<Stages>;
                windows fn journal() -> Result<Option<String>>;
                windows fn flight() -> Result<Option<String>>;
                wine fn ask(program: &str, arguments: &[&str]) -> Result<Said>;
                windows fn problem(device: &str) -> Result<u32>;
                windows fn verify_signature(file: &Path, catalog: &Path) -> Result<()>;
                windows fn awaits_restart() -> Result<Option<String>>;
                windows fn is_marked() -> Result<bool>;
                wine fn pause_s(seconds: u64) -> ();
            }
            changes {
                windows fn set_journal(text: Option<&str>);
                windows fn set_flight(text: Option<&str>);
                windows fn mark();
                windows fn schedule_rollback(within_s: u64);
                wine fn cancel_rollback();
                windows fn keep_tool();
                windows fn remove_tool();
                windows fn trust(store: Store, certificate: &Certificate);
                windows fn distrust(store: Store, thumbprint: &str);
                wine fn stage(inf: &Path);
                wine fn unstage(published: &str);
                file fn install_protocol(nic: &str);
                wine fn remove_protocol();
                windows fn create_device(device: &str);
                wine fn remove_device(device: &str);
                windows fn install_driver(inf: &Path);
                windows fn exchange_driver(published: &str);
                file fn register_counters(manifest: &Path);
                file fn unregister_counters();
                windows fn set_keyword(device: &str, name: &str, value: &str);
                file fn rename(device: &str, name: &str);
                file fn restart(device: &str);
                file fn bind(nic: &str, component: &str);
                file fn unbind(nic: &str, component: &str);
                file fn add_ip_settings(adapter: &str, settings: &IpSettings);
            }
        }
    };
}

pub(crate) use operations;
