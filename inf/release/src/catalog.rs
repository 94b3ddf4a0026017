//! Catalog files: which files a signature is about, by their hashes.
//!
//! A catalog is a PKCS#7 `SignedData` (RFC 2315, chapter 9) about a certificate trust list, whose structure is that of
//! [`CTL_INFO`](https://learn.microsoft.com/windows/win32/api/wincrypt/ns-wincrypt-ctl_info). Microsoft publishes the
//! names of its parts ([mscat.h](https://learn.microsoft.com/windows/win32/api/mscat/)) and no description of their
//! encoding; this is how Inf2Cat and Microsoft's own signing service encode it today, which a test below holds it to:
//! version 2 of the format, with two members for each file, one by its SHA-1 and one by its SHA-256.

use anyhow::{Context as _, Result, ensure};
use der::asn1::{
    Any, AnyRef, BitString, BmpString, Null, ObjectIdentifier, OctetString, SetOfVec, UtcTime,
};
use der::{Decode as _, Encode as _, Reader as _, Sequence, Tag, TagNumber, ValueOrd};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

use crate::authenticode::Hashes;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
/// `szOID_CTL`
const CTL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.1");
/// `szOID_CATALOG_LIST`
const CATALOG_LIST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.1.1");
/// `szOID_CATALOG_LIST_MEMBER2`
const CATALOG_LIST_MEMBER2: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.1.3");
/// `CAT_NAMEVALUE_OBJID`
const CAT_NAMEVALUE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.2.1");
/// `CAT_MEMBERINFO2_OBJID`
const CAT_MEMBERINFO2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.2.3");
/// `SPC_INDIRECT_DATA_OBJID`
const SPC_INDIRECT_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.4");
/// `SPC_PE_IMAGE_DATA_OBJID`
const SPC_PE_IMAGE_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.15");
/// `SPC_LINK_OBJID`
const SPC_LINK: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.25");

/// `CRYPTCAT_ATTR_AUTHENTICATED | CRYPTCAT_ATTR_DATAASCII | CRYPTCAT_ATTR_NAMEASCII`
const ATTRIBUTE_FLAGS: u32 = 0x1001_0001;
/// Windows 10 and all that came after it, clients and servers.
const OS_ATTR: &str = "2:10.0";

/// Where a member's hash comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The hash is that of [`crate::authenticode`].
    Image,
    /// The hash is that of the whole file.
    File,
}

/// A file that the catalog vouches for.
#[derive(Clone, Debug)]
pub struct Member {
    /// The file's name, without a folder.
    pub file: String,
    /// Decides how Windows computes the hashes.
    pub kind: Kind,
    /// By which the file is looked up.
    pub hashes: Hashes,
}

/// The content of a catalog.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Seconds since 1970.
    pub made_at_s: u64,
    /// In any order.
    pub members: Vec<Member>,
    /// Of the whole catalog, such as `OS` and `HWID1`.
    pub attributes: Vec<(String, String)>,
}

impl Catalog {
    /// The catalog without a signer, ready for one.
    pub fn encode(&self) -> Result<Vec<u8>> {
        // Its members make it what it is: no chance, so that the same files make the same catalog.
        let mut identity = Sha256::new();
        for member in &self.members {
            identity.update(member.hashes.sha256);
        }
        let list = self.trust_list(&identity.finalize()[..16])?;
        let signed = SignedData {
            version: 1,
            digest_algorithms: SetOfVec::new(),
            content: Content { oid: CTL, content: Any::encode_from(&list)? },
            signer_infos: SetOfVec::new(),
        };
        let content = Any::encode_from(&signed)?;
        Ok(Content { oid: SIGNED_DATA, content }.to_der()?)
    }

    fn trust_list(&self, identifier: &[u8]) -> Result<TrustList> {
        let mut subjects = Vec::new();
        for member in &self.members {
            subjects.push(member.by_sha1()?);
            subjects.push(member.by_sha256()?);
        }
        // Windows searches it by halves.
        subjects.sort_by(|a, b| a.identifier.as_bytes().cmp(b.identifier.as_bytes()));
        let extension = |(name, value): &(String, String)| -> Result<Extension> {
            let value = OctetString::new(NameValue::new(name, value)?.to_der()?)?;
            Ok(Extension { oid: CAT_NAMEVALUE, value })
        };
        Ok(TrustList {
            subject_usage: vec![CATALOG_LIST],
            identifier: OctetString::new(identifier)?,
            this_update: UtcTime::from_unix_duration(Duration::from_secs(self.made_at_s))?,
            subject_algorithm: Algorithm { oid: CATALOG_LIST_MEMBER2, parameters: Null },
            subjects,
            extensions: self.attributes.iter().map(extension).collect::<Result<_>>()?,
        })
    }
}

/// The content that a catalog's signature is about, with its tag: the trust list.
pub fn content(catalog: &[u8]) -> Result<Vec<u8>> {
    let outer = Content::from_der(catalog).context("no PKCS#7 content")?;
    ensure!(outer.oid == SIGNED_DATA, "content of the type {}", outer.oid);
    let signed = outer.content.sequence(|reader| -> der::Result<Content> {
        let _version = reader.decode::<u8>()?;
        let _digest_algorithms = reader.decode::<AnyRef<'_>>()?;
        let content = reader.decode::<Content>()?;
        while !reader.is_finished() {
            reader.decode::<AnyRef<'_>>()?;
        }
        Ok(content)
    });
    let signed = signed.context("no signed data")?;
    ensure!(signed.oid == CTL, "signed content of the type {}", signed.oid);
    Ok(signed.content.to_der()?)
}

impl Member {
    fn by_sha1(&self) -> Result<Subject> {
        let identifier = OctetString::new(self.hashes.sha1)?;
        Ok(Subject { identifier, attributes: SetOfVec::from_iter(self.attributes()?)? })
    }

    fn by_sha256(&self) -> Result<Subject> {
        let identifier = OctetString::new(self.hashes.sha256)?;
        let data = IndirectData {
            data: self.data()?,
            digest: Digest {
                algorithm: Algorithm { oid: SHA256, parameters: Null },
                digest: identifier.clone(),
            },
        };
        let mut attributes = self.attributes()?;
        attributes.push(Attribute::new(SPC_INDIRECT_DATA, Any::encode_from(&data)?)?);
        Ok(Subject { identifier, attributes: SetOfVec::from_iter(attributes)? })
    }

    fn attributes(&self) -> Result<Vec<Attribute>> {
        let number = match self.kind {
            Kind::Image => TagNumber(0),
            Kind::File => TagNumber(2),
        };
        let info = Any::new(Tag::ContextSpecific { constructed: false, number }, [])?;
        // Windows' tools look for file names in small letters.
        let name_values = [("OSAttr", OS_ATTR), ("File", &self.file.to_lowercase())];
        let mut attributes = vec![Attribute::new(CAT_MEMBERINFO2, info)?];
        for (name, value) in name_values {
            let value = Any::encode_from(&NameValue::new(name, value)?)?;
            attributes.push(Attribute::new(CAT_NAMEVALUE, value)?);
        }
        Ok(attributes)
    }

    /// `SpcAttributeTypeAndOptionalValue`
    fn data(&self) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Image => {
                // Resources and imports are hashed, too; there is no such choice any more.
                let flags = BitString::new(5, [0xa0])?;
                let image = ImageData { flags, file: no_link()? };
                DataType { oid: SPC_PE_IMAGE_DATA, value: Any::encode_from(&image)? }
            }
            Kind::File => DataType { oid: SPC_LINK, value: no_link()? },
        })
    }
}

/// `SpcLink` to a file without a name.
fn no_link() -> Result<Any> {
    let name = Any::new(Tag::ContextSpecific { constructed: false, number: TagNumber(0) }, [])?;
    let link = Tag::ContextSpecific { constructed: true, number: TagNumber(2) };
    Ok(Any::new(link, name.to_der()?)?)
}

/// `ContentInfo`
#[derive(Sequence)]
struct Content {
    oid: ObjectIdentifier,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    content: Any,
}

/// `SignedData` before there is a signer.
#[derive(Sequence)]
struct SignedData {
    version: u8,
    digest_algorithms: SetOfVec<Any>,
    content: Content,
    signer_infos: SetOfVec<Any>,
}

/// `CertificateTrustList`
#[derive(Sequence)]
struct TrustList {
    subject_usage: Vec<ObjectIdentifier>,
    identifier: OctetString,
    this_update: UtcTime,
    subject_algorithm: Algorithm,
    subjects: Vec<Subject>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    extensions: Vec<Extension>,
}

/// `TrustedSubject`
#[derive(Sequence)]
struct Subject {
    identifier: OctetString,
    attributes: SetOfVec<Attribute>,
}

#[derive(Sequence, ValueOrd)]
struct Attribute {
    oid: ObjectIdentifier,
    values: SetOfVec<Any>,
}

impl Attribute {
    fn new(oid: ObjectIdentifier, value: Any) -> Result<Self> {
        Ok(Self { oid, values: SetOfVec::from_iter([value])? })
    }
}

#[derive(Sequence)]
struct Extension {
    oid: ObjectIdentifier,
    value: OctetString,
}

/// `CatalogNameValue`
#[derive(Sequence)]
struct NameValue {
    name: BmpString,
    flags: u32,
    value: OctetString,
}

impl NameValue {
    /// The name is in the order of a network, the value in that of Windows, with a zero behind it.
    fn new(name: &str, value: &str) -> Result<Self> {
        let value: Vec<u8> = value.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        Ok(Self {
            name: BmpString::from_utf8(name)?,
            flags: ATTRIBUTE_FLAGS,
            value: OctetString::new(value)?,
        })
    }
}

#[derive(Sequence)]
struct Algorithm {
    oid: ObjectIdentifier,
    parameters: Null,
}

/// `SpcIndirectDataContent`
#[derive(Sequence)]
struct IndirectData {
    data: DataType,
    digest: Digest,
}

/// `SpcAttributeTypeAndOptionalValue`
#[derive(Sequence)]
struct DataType {
    oid: ObjectIdentifier,
    value: Any,
}

/// `SpcPeImageData`
#[derive(Sequence)]
struct ImageData {
    flags: BitString,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    file: Any,
}

/// `DigestInfo`
#[derive(Sequence)]
struct Digest {
    algorithm: Algorithm,
    digest: OctetString,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The four hashes, the identifier, the time and the names of a catalog that Microsoft's signing service made in
    /// August 2026, published as `Drivers/x64/VBoxUSB.cat` of <https://github.com/dorssel/usbipd-win>, and the
    /// SHA-256 of its trust list.
    mod published {
        pub(super) const SYS: (&str, &str) = (
            "0aba376f6d56c638b77cdedefd72bc0ca7e2b9ba",
            "8f1c1e221a941085844e9f20df62204eab757e7d5cb9e56f81bd0d68de13414b",
        );
        pub(super) const INF: (&str, &str) = (
            "b13b3e9837bbcf7ea05039412580e4c068bce242",
            "bfe5aea59ac22f88b36e0c71d58613742dd8297daf75f86291feeabfc40b9adc",
        );
        pub(super) const IDENTIFIER: &str = "806ddca39eca144e82a8749b4405e1ba";
        pub(super) const MADE_AT_S: u64 = 1_786_658_917;
        pub(super) const ATTRIBUTES: [(&str, &str); 6] = [
            ("Submission ID", "30041490_13875120109679985_1152921505701654996"),
            ("BundleID", "VBoxUSB"),
            ("Universal", "True"),
            ("Declarative", "True"),
            (
                "OS",
                "_v100_X64,_v100_X64_RS1,_v100_X64_RS2,_v100_X64_RS3,_v100_X64_RS4,_v100_X64_RS5,\
                 _v100_X64_19H1,_v100_X64_Vb,_v100_X64_21H2,_v100_X64_22H2",
            ),
            ("HWID1", r"usb\vid_80ee&pid_cafe"),
        ];
        pub(super) const LIST: &str =
            "49f27f60b784374e094b8243439ceeace197075c07fac0e713dccc8f93bd6460";
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn member(file: &str, kind: Kind, (sha1, sha256): (&str, &str)) -> Member {
        let hashes = Hashes {
            sha1: bytes(sha1).try_into().expect("20 bytes"),
            sha256: bytes(sha256).try_into().expect("32 bytes"),
        };
        Member { file: file.to_owned(), kind, hashes }
    }

    fn catalog() -> Catalog {
        let attributes = published::ATTRIBUTES.map(|(name, value)| (name.into(), value.into()));
        Catalog {
            made_at_s: published::MADE_AT_S,
            members: vec![
                member("VBoxUSB.inf", Kind::File, published::INF),
                member("VBoxUSB.sys", Kind::Image, published::SYS),
            ],
            attributes: attributes.to_vec(),
        }
    }

    /// Goal: the encoding is Microsoft's, to the bit.
    #[test]
    fn a_trust_list_is_encoded_as_microsoft_does() {
        let list = catalog().trust_list(&bytes(published::IDENTIFIER)).expect("a trust list");
        let list = list.to_der().expect("its encoding");
        assert_eq!(Sha256::digest(&list)[..], bytes(published::LIST));
    }

    #[test]
    fn a_catalog_gives_back_its_content() {
        let encoded = catalog().encode().expect("a catalog");
        let list = content(&encoded).expect("its content");
        assert!(encoded.windows(list.len()).any(|window| window == list));
        let mut other = catalog();
        other.members[0].hashes.sha256[0] ^= 1;
        assert_ne!(content(&other.encode().expect("a catalog")).expect("its content"), list);
        assert!(content(&encoded[..encoded.len() - 1]).is_err());
    }
}
