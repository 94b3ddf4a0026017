//! Little that is read of texts: an INF's catalog, a hexadecimal thumbprint.

/// The catalog that an INF names. Windows keeps an INF in the encoding that it came in.
pub(crate) fn catalog(inf: &[u8]) -> Option<String> {
    let text = match inf {
        [0xff, 0xfe, rest @ ..] => {
            let units = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            String::from_utf16_lossy(&units.collect::<Vec<_>>())
        }
        _ => String::from_utf8_lossy(inf).into_owned(),
    };
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.split(';').next()?.trim().trim_matches('"');
        key.trim().eq_ignore_ascii_case("CatalogFile").then(|| value.to_string())
    })
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

    #[test]
    fn a_thumbprint_is_bytes() {
        assert_eq!(bytes("00FFa1"), Some(vec![0, 0xff, 0xa1]));
        assert_eq!(bytes("0G"), None);
    }
}
