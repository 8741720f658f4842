#!/usr/bin/env bash
# scripts/release.sh [OUT [ARCH...]] writes a release into OUT (default: out/release) for these architectures (default:
# amd64 arm64): packages in static repositories for apt and yum, archives, container images, bills of materials, sums.
# The same commit gives the same files, byte for byte. WEIR_BIN has the programs that were built for this machine; those
# of another architecture are built by the same Go. PROGRAMS names some instead of all. RELEASE_KEY, a key of gpg, signs
# the repositories and the sums; signatures hold the time.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-out/release}
archs=("${@:2}")
[ "${#archs[@]}" -gt 0 ] || archs=(amd64 arm64)
native=$(realpath "${WEIR_BIN:-bin}")
read -ra programs <<<"${PROGRAMS:-weir weir-manager weir-mux weir-agent weir-switch}"
ldflags=${LDFLAGS:-$(make -s print-ldflags)}

fail() {
	echo "release: $*" >&2
	exit 1
}

for tool in apt-ftparchive:apt-utils createrepo_c:createrepo-c; do
	command -v "${tool%%:*}" >/dev/null || fail "${tool%%:*} is not installed: apt-get install ${tool##*:}"
done

version=$(scripts/packages.sh --version)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH WEIR_PACKAGE_VERSION=$version LC_ALL=C TZ=UTC

rm -rf "$out"
mkdir -p "$out"/{apt/pool,archives,images,sbom,yum}
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/release" ./deploy/release
scripts/manuals.sh "$native" "$work/share" "${programs[@]}"

pack() { # NAME: of $work/tree
	tar -C "$work/tree" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$1" | gzip -9n >"$out/archives/$1.tar.gz"
}

for arch in "${archs[@]}"; do
	bin=$work/bin-$arch
	mkdir -p "$bin"
	if [ "$arch" = "$(go env GOHOSTARCH)" ]; then
		cp -L "${programs[@]/#/$native/}" "$bin/" # a package of a link would hold the link
	else
		CGO_ENABLED=0 GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$bin/" "${programs[@]/#/./cmd/}"
	fi

	WEIR_ARCH=$arch WEIR_NATIVE=$native scripts/packages.sh "$bin" "$work/packages-$arch" "${programs[@]}"
	case $arch in
	amd64) rpm=x86_64 ;;
	arm64) rpm=aarch64 ;;
	*) fail "no package of $arch: of amd64 and arm64 there are" ;;
	esac
	mkdir -p "$out/yum/$rpm"
	mv "$work/packages-$arch"/*.deb "$out/apt/pool/"
	mv "$work/packages-$arch"/*.rpm "$out/yum/$rpm/"
	touch -d "@$SOURCE_DATE_EPOCH" "$out/yum/$rpm"/*.rpm # the index tells it
	createrepo_c --quiet --workers 1 --simple-md-filenames --general-compress-type gz --no-database --revision "$SOURCE_DATE_EPOCH" --set-timestamp-to-revision "$out/yum/$rpm"

	tree=weir_${version}_linux_$arch
	mkdir -p "$work/tree/$tree"/{bin,share,config,systemd}
	cp -L "${programs[@]/#/$bin/}" "$work/tree/$tree/bin/"
	for program in "${programs[@]}"; do cp -r "$work/share/$program"/* "$work/tree/$tree/share/"; done
	cp deploy/config/*.yaml "$work/tree/$tree/config/"
	cp deploy/systemd/* "$work/tree/$tree/systemd/"
	cp LICENSE CHANGELOG.md "$work/tree/$tree/"
	chmod -R u=rwX,go=rX "$work/tree/$tree"
	pack "$tree"

	for program in "${programs[@]}"; do
		"$work/release" image "deploy/containers/Containerfile.${program#weir-}" "$bin" "$arch" "$version" "$out/images/${program}_${version}_$arch.oci.tar"
		"$work/release" sbom "$bin/$program" "$version" "$out/sbom/${program}_${version}_$arch.cdx.json"
	done
done

# apt: dists/stable/main, whose files lie in pool.
(
	cd "$out/apt"
	for arch in "${archs[@]}"; do
		into=dists/stable/main/binary-$arch
		mkdir -p "$into"
		apt-ftparchive --arch "$arch" packages pool >"$into/Packages"
		gzip -9nk "$into/Packages"
	done
	date=$(date -u -R -d "@$SOURCE_DATE_EPOCH" | sed 's/+0000/UTC/')
	options=()
	for field in Origin=Weir Label=Weir Suite=stable Codename=stable Components=main "Architectures=${archs[*]}"; do
		options+=(-o "APT::FTPArchive::Release::$field")
	done
	apt-ftparchive "${options[@]}" release dists/stable | sed "s/^Date: .*/Date: $date/" >"$work/Release"
	mv "$work/Release" dists/stable/Release
)

if [ -n "${RELEASE_KEY:-}" ]; then
	sign=(gpg --batch --yes --local-user "$RELEASE_KEY" --armor)
	"${sign[@]}" --clearsign --output "$out/apt/dists/stable/InRelease" "$out/apt/dists/stable/Release"
	for metadata in "$out"/yum/*/repodata/repomd.xml; do "${sign[@]}" --detach-sign "$metadata"; done
	gpg --armor --export "$RELEASE_KEY" >"$out/weir.asc"
fi
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
[ -z "${RELEASE_KEY:-}" ] || "${sign[@]}" --detach-sign "$out/SHA256SUMS"
