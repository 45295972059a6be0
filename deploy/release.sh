#!/usr/bin/env bash
# Builds a release into a directory: an archive and a bill of materials for each platform, Debian packages, checksums. From the
# same commit the same bytes, wherever and whenever it runs: no path, time or user of a machine gets in.
#
#   deploy/release.sh DIRECTORY [VERSION [PLATFORM…]]     PLATFORM as linux/amd64
#
# With ONLY=deb it makes Debian packages and nothing else, removes older ones for the same machines, and says how to install them.
# A commit without a tag is named by its time, so that of two packages the newer one has the higher version.
#
# It takes Go, git and GNU's tar and gzip. The tools are Go modules, pinned in deploy/tools; TOOLS names a directory that has them.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "$1"
out=$(cd "$1" && pwd)
read -r version deb_version < <(deploy/version.sh "${2:-}")
platforms=("${@:3}")
[ ${#platforms[@]} -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export TZ=UTC LC_ALL=C
umask 022

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if [ -z "${TOOLS:-}" ]; then
	TOOLS=$stage/tools
	if [ "${ONLY:-}" = deb ]; then tools=(github.com/goreleaser/nfpm/v2/cmd/nfpm ./links); else tools=(tool ./links); fi
	go build -C deploy/tools -trimpath -o "$TOOLS/" "${tools[@]}"
fi
gzip -9n <deploy/lockproxy.1 >"$stage/lockproxy.1.gz"
cp README.md CHANGELOG.md SECURITY.md deploy/lockproxy.{1,toml,service,socket} deploy/debian/lockproxy.sysusers "$stage/"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$stage/here" ./cmd/lockproxy # shares its packages with the one below
for shell in bash zsh fish; do "$stage/here" completion $shell >"$stage/completion.$shell"; done
cp deploy/debian/copyright "$stage/copyright"
gzip -9n >"$stage/changelog.gz" <<-END
	lockproxy ($deb_version) unstable; urgency=medium

	  * See CHANGELOG.md.

	 -- lockproxy maintainers <maintainers@lockproxy.invalid>  $(date -ud "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S %z')
END
mkdir -p "$stage"/{examples,deploy/{alerts,grafana,kubernetes}} # and docs: what the README leads to
cp -r docs "$stage/docs"
cp -r examples/adapters "$stage/examples/"
cp -r clients "$stage/clients"
cp deploy/alerts/lockproxy.yml "$stage/deploy/alerts/"
cp deploy/grafana/lockproxy.json "$stage/deploy/grafana/"
cp deploy/kubernetes/lockproxy.yaml "$stage/deploy/kubernetes/"
find "$stage/examples" "$stage/clients" -name __pycache__ -prune -exec rm -r {} +
"$TOOLS/links" "$stage" # what is for those who change lockproxy is not in a package
chmod -R u=rwX,go=rX "$stage/docs" "$stage/examples" "$stage/clients" "$stage/deploy" "$stage"/*.md

# The licences of what is built into the binary want to be passed on with it.
shopt -s nullglob
{
	echo "Go $(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
	go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/lockproxy | LC_ALL=C sort -u |
		while read -r module number dir; do
			printf '\n%s\n\n%s %s\n' "$(printf '=%.0s' {1..80})" "$module" "$number"
			licences=("$dir"/LICEN[CS]E* "$dir"/COPYING*)
			[ ${#licences[@]} -gt 0 ] || { echo "$module has no licence" >&2; exit 1; }
			cat "${licences[@]}"
		done
} >"$stage/third-party.txt"
gzip -9nk "$stage/third-party.txt"

# archive DIRECTORY FILE: a tar of it, with nothing that depends on when and where it was made.
archive() {
	tar -C "$(dirname "$1")" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
		--mtime="@$SOURCE_DATE_EPOCH" -cf - "$(basename "$1")" | gzip -9n >"$2"
}

# debian ARCHITECTURE: a package of what was built last.
debian() {
	DEB_ARCH=$1 DEB_VERSION=$deb_version STAGE=$stage \
		"$TOOLS/nfpm" package --config deploy/nfpm.yaml --packager deb --target "$out/lockproxy_${version}_$1.deb" >"$stage/log" ||
		{ cat "$stage/log" >&2; exit 1; }
}

# bill FILE: what is built into the binary, as CycloneDX. The serial number is left out, and the time is the release's.
bill() {
	"$TOOLS/cyclonedx-gomod" bin -json -std -noserial -version "$version" -output "$stage/bill.json" "$stage/lockproxy" 2>"$stage/log" ||
		{ cat "$stage/log" >&2; exit 1; }
	sed "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$(date -ud "@$SOURCE_DATE_EPOCH" +%FT%TZ)\"/" "$stage/bill.json" >"$1"
}

for platform in "${platforms[@]}"; do
	os=${platform%/*} arch=${platform#*/} name=lockproxy_${version}_${platform/\//_}
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$stage/lockproxy" ./cmd/lockproxy
	find "$stage" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	if [ "${ONLY:-}" = deb ]; then
		rm -f "$out"/lockproxy_*_"$arch".deb
		debian "$arch"
		echo "sudo apt install $1/lockproxy_${version}_$arch.deb"
		continue
	fi
	mkdir "$stage/$name"
	cp -r "$stage"/lockproxy{,.1,.toml,.service,.socket} "$stage"/{*.md,copyright,third-party.txt,completion.*,docs,examples,clients,deploy} "$stage/$name/"
	archive "$stage/$name" "$out/$name.tar.gz"
	bill "$out/$name.cdx.json"
	if [ "$os" = linux ]; then debian "$arch"; fi
done

[ "${ONLY:-}" = deb ] || (cd "$out" && sha256sum lockproxy_* >SHA256SUMS)
