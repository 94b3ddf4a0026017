//! Little that is read of texts: an INF's catalog, a hexadecimal thumbprint.

/// The catalog that an INF names.
pub(crate) fn catalog(inf: &[u8]) -> Option<String> {
    text(inf).lines().find_map(|line| value(line, "CatalogFile"))
}

/// The date and version of an INF; empty where it has none.
pub(crate) fn driver_ver(inf: &[u8]) -> String {
    text(inf).lines().find_map(|line| value(line, "DriverVer")).unwrap_or_default()
}

/// Whether two INFs say the same, but for their versions.
pub(crate) fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    let rest = |inf| {
        let text = text(inf);
        let lines = text.lines().filter(|line| value(line, "DriverVer").is_none());
        lines.map(|line| line.trim_end().to_string()).collect::<Vec<_>>()
    };
    rest(one) == rest(other)
}

/// Windows keeps an INF in the encoding that it came in.
fn text(inf: &[u8]) -> String {
    match inf {
        [0xff, 0xfe, rest @ ..] => {
            let units = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            String::from_utf16_lossy(&units.collect::<Vec<_>>())
        }
        _ => String::from_utf8_lossy(inf).into_owned(),
    }
}

fn value(line: &str, wanted: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let value = value.split(';').next()?.trim().trim_matches('"');
    key.trim().eq_ignore_ascii_case(wanted).then(|| value.to_string())
}

/// The bytes of a text of hexadecimal digits.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Inf;

    /// The real INFs are known again, in either encoding; another's is not taken for ours.
    #[test]
    fn our_infs_are_known_by_their_catalogs() {
        let ours = [
            include_bytes!("../../ndkrocev2.inx").as_slice(),
            include_bytes!("../../ndkrocev2-lower.inx"),
        ];
        for (inf, text) in Inf::ALL.into_iter().zip(ours) {
            assert_eq!(catalog(text).as_deref(), Some(inf.catalog()));
            let narrow = String::from_utf8_lossy(text);
            let wide = narrow.encode_utf16().flat_map(u16::to_le_bytes);
            let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(wide).collect();
            assert_eq!(catalog(&wide).as_deref(), Some(inf.catalog()));
        }
        assert_eq!(catalog(b"[Version]\r\nCatalogFile.NT = x.cat\r\n; CatalogFile = y.cat"), None);
    }

    /// Two builds differ by their versions alone, in whatever encoding; another line is another INF.
    #[test]
    fn versions_are_told_apart() {
        let old = b"[Version]\r\nDriverVer = 11/01/2026,0.1.0.0 ; stamped\r\n[x]\r\na = b\r\n";
        let new = "[Version]\nDriverVer=11/29/2026,0.1.0.0\n[x]\na = b\n";
        let wide = new.encode_utf16().flat_map(u16::to_le_bytes);
        let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(wide).collect();
        assert_eq!(driver_ver(old), "11/01/2026,0.1.0.0");
        assert_eq!(driver_ver(&wide), "11/29/2026,0.1.0.0");
        assert!(says_the_same(old, &wide));
        assert!(!says_the_same(old, b"[Version]\n[x]\na = c\n"));
        assert_eq!(driver_ver(b""), "");
    }

    #[test]
    fn a_thumbprint_is_bytes() {
        assert_eq!(bytes("00FFa1"), Some(vec![0, 0xff, 0xa1]));
        assert_eq!(bytes("0G"), None);
    }
}
