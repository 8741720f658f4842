#!/usr/bin/env bash
# scripts/packages.sh [BIN [OUT [NAME...]]] writes deb and rpm packages of the programs in BIN (default: bin) into
# OUT (default: out/packages), of all programs or of those named. The same programs give the same files, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

export WEIR_BIN=${1:-bin}
out=${2:-out/packages}
names=("${@:3}")
[ "${#names[@]}" -gt 0 ] || names=(weir weir-manager weir-mux weir-agent weir-switch)

# v1.2.3 is 1.2.3, and five commits later 1.2.3+5.gabcdef0; before the first tag the commits count.
version() {
	local described
	if described=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
		described=${described#v}
		echo "$described" | sed -E 's/-([0-9]+)-(g[0-9a-f]+)$/+\1.\2/'
	else
		echo "0.0.$(git rev-list --count HEAD)+g$(git rev-parse --short HEAD)"
	fi
}

WEIR_PACKAGE_VERSION=${WEIR_PACKAGE_VERSION:-$(version)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
WEIR_ARCH=$(go env GOARCH)
export WEIR_PACKAGE_VERSION SOURCE_DATE_EPOCH WEIR_ARCH

rm -rf "$out"
mkdir -p "$out"
for name in "${names[@]}"; do
	for format in deb rpm; do
		go tool -modfile=tools/nfpm/go.mod nfpm package --config "deploy/nfpm/$name.yaml" --packager "$format" --target "$out/" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
	done
done
rm -f "$out/log"
(cd "$out" && sha256sum -- *.deb *.rpm >SHA256SUMS)
