//! What the benches of a message share with each other, and with the programs of `ndkperf`.

pub mod pairs;
#[allow(unsafe_code, reason = "an opener is a promise about raw pointers")]
pub mod world;

/// The processor by what checksums and the C library choose by, as this process sees it: valgrind shows another.
#[must_use]
pub fn processor() -> String {
    let mut words = vec![std::env::consts::ARCH];
    #[cfg(target_arch = "x86_64")]
    {
        let features = [
            ("avx2", is_x86_feature_detected!("avx2")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
            ("sse4.1", is_x86_feature_detected!("sse4.1")),
            ("ssse3", is_x86_feature_detected!("ssse3")),
            ("vpclmulqdq", is_x86_feature_detected!("vpclmulqdq")),
        ];
        words.extend(features.iter().filter(|(_, has)| *has).map(|(name, _)| *name));
    }
    words.join(" ")
}
