#!/bin/sh
# Signs ndkrocev2.sys on Linux with a certificate of its own, for Windows in test-signing mode.
#
#   inf/sign.sh [image] [folder]    defaults: target/windows/ndkrocev2.sys, target/windows/signed
#
# Exit status 77 says that a tool is missing. The folder then holds the signed image, test.cer to be
# trusted, and test.pfx (no password) to sign the catalogs with. The catalogs themselves are made on
# Windows: there is no inf2cat for Linux.
set -eu

root=$(dirname "$0")/..
image=${1:-$root/target/windows/ndkrocev2.sys}
folder=${2:-$root/target/windows/signed}
signed=$folder/ndkrocev2.sys

for tool in openssl osslsigncode; do
    command -v "$tool" > /dev/null || { echo "missing: apt install $tool" >&2; exit 77; }
done
[ -f "$image" ] || { echo "sign.sh: there is no image $image" >&2; exit 1; }
umask 077
mkdir -p "$folder"

# One key for all builds, so that a machine need trust it only once.
if [ ! -f "$folder/test.pfx" ]; then
    openssl req -x509 -newkey rsa:3072 -sha256 -days 1825 -nodes \
        -subj "/CN=ndkrocev2 test signing" \
        -addext "basicConstraints=critical,CA:false" \
        -addext "keyUsage=critical,digitalSignature" \
        -addext "extendedKeyUsage=critical,codeSigning" \
        -keyout "$folder/test.key" -out "$folder/test.pem" 2> /dev/null
    openssl x509 -in "$folder/test.pem" -outform DER -out "$folder/test.cer"
    openssl pkcs12 -export -passout pass: -inkey "$folder/test.key" -in "$folder/test.pem" \
        -out "$folder/test.pfx"
fi

# -ph: page hashes, which an image linked with /INTEGRITYCHECK is checked by as it is paged in.
rm -f "$signed"
osslsigncode sign -h sha256 -ph -n "ndkrocev2" -key "$folder/test.key" -certs "$folder/test.pem" \
    -in "$image" -out "$signed" > /dev/null
osslsigncode verify -CAfile "$folder/test.pem" -in "$signed" > "$folder/verify.txt" 2>&1 \
    || { cat "$folder/verify.txt" >&2; exit 1; }
echo "$signed is signed by $(openssl x509 -in "$folder/test.pem" -noout -subject -fingerprint -sha1 | tr '\n' ' ')"
