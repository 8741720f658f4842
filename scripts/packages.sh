#!/usr/bin/env bash
# scripts/packages.sh [BIN [OUT [NAME...]]] writes deb and rpm packages of the programs in BIN (default: bin) into
# OUT (default: out/packages), of all programs or of those named. The same programs give the same files, byte for byte.
# With --version it only tells their version.
# WEIR_ARCH names another architecture than this machine's; WEIR_NATIVE then has programs that run here, for man pages.
set -euo pipefail
cd "$(dirname "$0")/.."

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
if [ "${1:-}" = --version ]; then
	echo "$WEIR_PACKAGE_VERSION"
	exit
fi

export WEIR_BIN=${1:-bin}
out=${2:-out/packages}
names=("${@:3}")
[ "${#names[@]}" -gt 0 ] || names=(weir weir-manager weir-mux weir-agent weir-switch)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
WEIR_ARCH=${WEIR_ARCH:-$(go env GOARCH)}
export WEIR_PACKAGE_VERSION SOURCE_DATE_EPOCH WEIR_ARCH

rm -rf "$out"
mkdir -p "$out"
WEIR_SHARE=$(mktemp -d)
export WEIR_SHARE
trap 'rm -rf "$WEIR_SHARE"' EXIT
scripts/manuals.sh "${WEIR_NATIVE:-$WEIR_BIN}" "$WEIR_SHARE" "${names[@]}"
for name in "${names[@]}"; do
	for format in rpm deb; do
		# Debian's zsh looks for completions of packages elsewhere.
		[ "$format" = rpm ] || mv "$WEIR_SHARE/$name/zsh/site-functions" "$WEIR_SHARE/$name/zsh/vendor-completions"
		go tool -modfile=tools/nfpm/go.mod nfpm package --config "deploy/nfpm/$name.yaml" --packager "$format" --target "$out/" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
	done
done
rm -f "$out/log"
(cd "$out" && sha256sum -- *.deb *.rpm >SHA256SUMS)
