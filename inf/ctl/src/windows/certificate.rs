//! Certificates: a catalog's signer, and the machine's trust in it.

use std::ffi::c_void;
use std::fs::File;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, ensure};
use windows_sys::Win32::Security::Cryptography::Catalog::{
    CryptCATAdminAcquireContext2, CryptCATAdminCalcHashFromFileHandle2, CryptCATAdminReleaseContext,
};
use windows_sys::Win32::Security::Cryptography::{
    CERT_CONTEXT, CERT_FIND_SHA1_HASH, CERT_QUERY_CONTENT_FLAG_PKCS7_SIGNED,
    CERT_QUERY_FORMAT_FLAG_ALL, CERT_QUERY_OBJECT_FILE, CERT_SHA1_HASH_PROP_ID,
    CERT_STORE_ADD_REPLACE_EXISTING, CERT_STORE_CTRL_COMMIT, CERT_STORE_PROV_SYSTEM_W,
    CERT_SYSTEM_STORE_LOCAL_MACHINE, CERT_X500_NAME_STR, CMSG_SIGNER_CERT_INFO_PARAM,
    CRYPT_INTEGER_BLOB, CertAddEncodedCertificateToStore, CertCloseStore, CertControlStore,
    CertDeleteCertificateFromStore, CertFindCertificateInStore, CertFreeCertificateContext,
    CertGetCertificateContextProperty, CertGetSubjectCertificateFromStore, CertNameToStrW,
    CertOpenStore, CryptMsgClose, CryptMsgGetParam, CryptQueryObject, HCERTSTORE,
    PKCS_7_ASN_ENCODING, X509_ASN_ENCODING,
};
use windows_sys::Win32::Security::WinTrust::{
    DRIVER_ACTION_VERIFY, WINTRUST_CATALOG_INFO, WINTRUST_DATA, WINTRUST_DATA_0,
    WTD_CHOICE_CATALOG, WTD_REVOKE_NONE, WTD_STATEACTION_CLOSE, WTD_STATEACTION_VERIFY,
    WTD_UI_NONE, WinVerifyTrust,
};

use super::{check, narrow, wide};
use crate::machine::{Certificate, Store};

/// All that is encoded here is.
const ENCODING: u32 = X509_ASN_ENCODING | PKCS_7_ASN_ENCODING;

/// A signed message's certificates.
struct Message {
    store: HCERTSTORE,
    message: *mut c_void,
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the message is open.
        unsafe { CryptMsgClose(self.message) };
        // SAFETY: so is the store.
        unsafe { CertCloseStore(self.store, 0) };
    }
}

pub(super) fn signer(catalog: &Path) -> Result<Certificate> {
    let path = wide(catalog);
    let mut opened = Message { store: null_mut(), message: null_mut() };
    // SAFETY: the path ends with a NUL; the results that are not wanted may be null.
    let ok = unsafe {
        CryptQueryObject(
            CERT_QUERY_OBJECT_FILE,
            path.as_ptr().cast(),
            CERT_QUERY_CONTENT_FLAG_PKCS7_SIGNED,
            CERT_QUERY_FORMAT_FLAG_ALL,
            0,
            null_mut(),
            null_mut(),
            null_mut(),
            &raw mut opened.store,
            &raw mut opened.message,
            null_mut(),
        )
    };
    check(ok, "CryptQueryObject")?;
    let mut len = 0;
    // SAFETY: without room it tells how much it needs.
    let ok = unsafe {
        CryptMsgGetParam(opened.message, CMSG_SIGNER_CERT_INFO_PARAM, 0, null_mut(), &raw mut len)
    };
    check(ok, "CryptMsgGetParam")?;
    // Structures lie in it.
    let mut info = vec![0_u64; len.div_ceil(8) as usize];
    // SAFETY: there is room for `len` bytes.
    let ok = unsafe {
        CryptMsgGetParam(
            opened.message,
            CMSG_SIGNER_CERT_INFO_PARAM,
            0,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(ok, "CryptMsgGetParam")?;
    // SAFETY: the parameter is a CERT_INFO.
    let context =
        unsafe { CertGetSubjectCertificateFromStore(opened.store, ENCODING, info.as_ptr().cast()) };
    check(i32::from(!context.is_null()), "CertGetSubjectCertificateFromStore")?;
    let certificate = describe(context);
    // SAFETY: the context is ours.
    unsafe { CertFreeCertificateContext(context) };
    certificate
}

fn describe(context: *const CERT_CONTEXT) -> Result<Certificate> {
    let mut hash = [0_u8; 20];
    let mut len = 20;
    // SAFETY: there is room for the 20 bytes of SHA-1.
    let ok = unsafe {
        CertGetCertificateContextProperty(
            context,
            CERT_SHA1_HASH_PROP_ID,
            hash.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(ok, "CertGetCertificateContextProperty")?;
    // SAFETY: the context is alive.
    let context = unsafe { &*context };
    // SAFETY: so is its information.
    let info = unsafe { &*context.pCertInfo };
    // SAFETY: the encoded certificate has this many bytes.
    let der = unsafe {
        std::slice::from_raw_parts(context.pbCertEncoded, context.cbCertEncoded as usize)
    };
    Ok(Certificate {
        thumbprint: hash.iter().map(|byte| format!("{byte:02X}")).collect(),
        subject: name(&info.Subject),
        issuer: name(&info.Issuer),
        der: der.to_vec(),
    })
}

fn name(blob: &CRYPT_INTEGER_BLOB) -> String {
    let mut text = [0_u16; 512];
    // SAFETY: there is room for 512 units, into which a longer name is cut.
    unsafe { CertNameToStrW(X509_ASN_ENCODING, blob, CERT_X500_NAME_STR, text.as_mut_ptr(), 512) };
    narrow(&text)
}

/// A store of the machine, open.
struct Open(HCERTSTORE);

impl Open {
    fn new(store: Store) -> Result<Self> {
        let name = wide(store.to_string());
        // SAFETY: this provider takes a name that ends with a NUL.
        let opened = unsafe {
            CertOpenStore(
                CERT_STORE_PROV_SYSTEM_W,
                0,
                0,
                CERT_SYSTEM_STORE_LOCAL_MACHINE,
                name.as_ptr().cast(),
            )
        };
        check(i32::from(!opened.is_null()), "CertOpenStore")?;
        Ok(Self(opened))
    }

    /// Null where it is not there.
    fn find(&self, thumbprint: &str) -> Result<*mut CERT_CONTEXT> {
        let mut hash = crate::inf::bytes(thumbprint).context("no thumbprint")?;
        let blob =
            CRYPT_INTEGER_BLOB { cbData: u32::try_from(hash.len())?, pbData: hash.as_mut_ptr() };
        // SAFETY: the store is open, and this search takes a blob.
        Ok(unsafe {
            CertFindCertificateInStore(
                self.0,
                ENCODING,
                0,
                CERT_FIND_SHA1_HASH,
                (&raw const blob).cast(),
                null(),
            )
        })
    }

    /// Writes what was changed. Closing the store would, too, but says nothing where it cannot.
    fn commit(&self) -> Result<()> {
        // SAFETY: the store is open; this control takes no parameter.
        let ok = unsafe { CertControlStore(self.0, 0, CERT_STORE_CTRL_COMMIT, null()) };
        check(ok, "CertControlStore")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the store is open.
        unsafe { CertCloseStore(self.0, 0) };
    }
}

pub(super) fn trusts(store: Store, thumbprint: &str) -> Result<bool> {
    let open = Open::new(store)?;
    let found = open.find(thumbprint)?;
    if found.is_null() {
        return Ok(false);
    }
    // SAFETY: the context is ours.
    unsafe { CertFreeCertificateContext(found) };
    Ok(true)
}

pub(super) fn add(store: Store, certificate: &Certificate) -> Result<()> {
    let open = Open::new(store)?;
    let der = &certificate.der;
    // SAFETY: the encoded certificate has this length; the context is not asked for.
    let ok = unsafe {
        CertAddEncodedCertificateToStore(
            open.0,
            ENCODING,
            der.as_ptr(),
            u32::try_from(der.len())?,
            CERT_STORE_ADD_REPLACE_EXISTING,
            null_mut(),
        )
    };
    check(ok, "CertAddEncodedCertificateToStore")?;
    open.commit()
}

pub(super) fn remove(store: Store, thumbprint: &str) -> Result<()> {
    let open = Open::new(store)?;
    let found = open.find(thumbprint)?;
    if found.is_null() {
        return Ok(());
    }
    // SAFETY: it takes the context back, whatever it returns.
    check(unsafe { CertDeleteCertificateFromStore(found) }, "CertDeleteCertificateFromStore")?;
    open.commit()
}

/// Whether Windows would take the file for a driver, by its hash in the catalog and the catalog's signer.
pub(super) fn verify(file: &Path, catalog: &Path) -> Result<()> {
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    let mut admin = 0;
    let algorithm = wide("SHA256");
    // SAFETY: the name ends with a NUL.
    let ok = unsafe {
        CryptCATAdminAcquireContext2(&raw mut admin, null(), algorithm.as_ptr(), null(), 0)
    };
    check(ok, "CryptCATAdminAcquireContext2")?;
    let verified = verify_by(admin, &opened, file, catalog);
    // SAFETY: the context is ours.
    unsafe { CryptCATAdminReleaseContext(admin, 0) };
    verified
}

fn verify_by(admin: isize, opened: &File, file: &Path, catalog: &Path) -> Result<()> {
    let (mut hash, mut len) = ([0_u8; 64], 64);
    let handle = opened.as_raw_handle();
    // SAFETY: the file is open, and there is room for 64 bytes.
    let ok = unsafe {
        CryptCATAdminCalcHashFromFileHandle2(admin, handle, &raw mut len, hash.as_mut_ptr(), 0)
    };
    check(ok, "CryptCATAdminCalcHashFromFileHandle2")?;
    let tag: String = hash[..len as usize].iter().map(|byte| format!("{byte:02X}")).collect();
    let (tag, file, catalog) = (wide(tag), wide(file), wide(catalog));
    let mut info = WINTRUST_CATALOG_INFO {
        cbStruct: size_of::<WINTRUST_CATALOG_INFO>() as u32,
        pcwszCatalogFilePath: catalog.as_ptr(),
        pcwszMemberTag: tag.as_ptr(),
        pcwszMemberFilePath: file.as_ptr(),
        hMemberFile: handle,
        pbCalculatedFileHash: hash.as_mut_ptr(),
        cbCalculatedFileHash: len,
        hCatAdmin: admin,
        ..Default::default()
    };
    let mut data = WINTRUST_DATA {
        cbStruct: size_of::<WINTRUST_DATA>() as u32,
        dwUIChoice: WTD_UI_NONE,
        fdwRevocationChecks: WTD_REVOKE_NONE,
        dwUnionChoice: WTD_CHOICE_CATALOG,
        Anonymous: WINTRUST_DATA_0 { pCatalog: &raw mut info },
        dwStateAction: WTD_STATEACTION_VERIFY,
        ..Default::default()
    };
    let mut action = DRIVER_ACTION_VERIFY;
    // SAFETY: the structures and all that they point to live on.
    let status = unsafe { WinVerifyTrust(null_mut(), &raw mut action, (&raw mut data).cast()) };
    data.dwStateAction = WTD_STATEACTION_CLOSE;
    // SAFETY: as above; this gives back what verifying took.
    unsafe { WinVerifyTrust(null_mut(), &raw mut action, (&raw mut data).cast()) };
    ensure!(status == 0, "WinVerifyTrust: {status:#010X}");
    Ok(())
}
