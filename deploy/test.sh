#!/usr/bin/env bash
# Looks at what deploy/ makes: builds the release for all platforms, the package twice, and compares, runs the binary in it, also alone in
# a root directory as in the image, installs and purges it in an overlay of this system (test-install.sh), and reads the unit, Dockerfile, compose file, manifests and bill of
# materials with the tools that are there for them. One line for each; it ends at the first failure.
#
# Not done here: building the image, which takes a container engine and the images that it is made from.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
pass() { echo "ok  $*"; passed=$((passed + 1)); }
fail() { echo "FAIL  $*" >&2; exit 1; }

go build -C deploy/tools -trimpath -o "$work/tools/" tool ./links ./verify
export TOOLS=$work/tools SOURCE_DATE_EPOCH=1700000000
version=v1.2.3-rc.4

# Of commits in a row the later one has the higher version, with and without tags.
git init -q "$work/commits"
before=
for step in 'Nov 27 23:59:59' 'Nov 28 00:00:00' 'Nov 28 00:00:01 v1.0.0-rc.1' 'Nov 28 00:00:02' 'Nov 28 00:00:03 v1.0.0' 'Nov 28 00:00:04'; do
	read -r month day time tag <<<"$step"
	GIT_COMMITTER_DATE="$month $day $time 2026 +0000" git -C "$work/commits" -c user.name=x -c user.email=x@x commit -q --allow-empty -m x
	[ -z "$tag" ] || git -C "$work/commits" tag "$tag"
	read -r named after < <(cd "$work/commits" && "$OLDPWD/deploy/version.sh")
	[ -z "$before" ] || dpkg --compare-versions "$before" lt "$after" || fail "the version $after ($named) is not above $before, of the commit before"
	before=$after
done
pass "release: versions rise from commit to commit, up to $before"

# Twice: from two directories, at two times, with two umasks.
mkdir "$work/here"
git ls-files -z --cached --others --exclude-standard | xargs -0 tar --ignore-failed-read -cf - 2>/dev/null | tar -C "$work/here" -xf -
cp -r "$work/here" "$work/elsewhere"
"$work/here/deploy/release.sh" "$work/a" $version linux/amd64
(umask 077 && "$work/elsewhere/deploy/release.sh" "$work/b" $version linux/amd64)
diff -r "$work/a" "$work/b" || fail "two builds of the same commit differ"
pass "release: built twice, byte for byte the same: $(ls "$work/a" | tr '\n' ' ')"

"$work/here/deploy/release.sh" "$work/others" $version linux/arm64 darwin/amd64 darwin/arm64
(cd "$work/others" && sha256sum --check --quiet SHA256SUMS) || fail "the checksums are wrong"
for platform in linux_arm64 darwin_amd64 darwin_arm64; do
	tar -xzOf "$work/others/lockproxy_${version}_$platform.tar.gz" "lockproxy_${version}_$platform/lockproxy" >"$work/other"
	go version -m "$work/other" >"$work/built"
	for want in GOOS=${platform%_*} GOARCH=${platform#*_} CGO_ENABLED=0; do
		grep -q "build	$want$" "$work/built" || fail "the binary for $platform is not $want"
	done
done
pass "release: built for linux/arm64, darwin/amd64 and darwin/arm64 too"

for dir in $(go list -deps ./cmd/lockproxy | sed -n 's|^lockproxy/\([^/]*\).*|\1|p' | sort -u); do
	grep -Eq "^!$dir(/|\$)" deploy/Dockerfile.dockerignore || fail "the image would be built without $dir: name it in deploy/Dockerfile.dockerignore"
done
"$work/tools/verify" containers deploy/Dockerfile deploy/compose.yaml || fail "image"
pass "image: its build is given all packages that it needs; BuildKit's linter finds nothing in the Dockerfile, nor compose's loader in compose.yaml"

deb=$work/a/lockproxy_${version}_amd64.deb
dpkg-deb --info "$deb" >"$work/info"
dpkg-deb --contents "$deb" >"$work/contents"
for want in 'Package: lockproxy' 'Version: 1.2.3~rc.4' 'Architecture: amd64'; do
	grep -q "^ $want$" "$work/info" || fail "the package's control file lacks $want: $(cat "$work/info")"
done
for want in '-rwxr-xr-x root/root .* ./usr/bin/lockproxy$' '-rw-r--r-- .* ./usr/lib/systemd/system/lockproxy.service$' \
	'-rw-r--r-- .* ./usr/lib/systemd/system/lockproxy.socket$' \
	'-rw-r----- .* ./etc/lockproxy/lockproxy.toml$' 'drwxr-x--- .* ./etc/lockproxy/$' '.* ./usr/share/man/man1/lockproxy.1.gz$' '.* ./usr/lib/sysusers.d/lockproxy.conf$' \
	'.* ./usr/share/doc/lockproxy/'{README.md,docs/operations.md,clients/README.md,deploy/alerts/lockproxy.yml,copyright,third-party.txt.gz,changelog.gz}'$' \
	'.* ./usr/share/'{bash-completion/completions/lockproxy,zsh/vendor-completions/_lockproxy,fish/vendor_completions.d/lockproxy.fish}'$'; do
	grep -Eq -- "^$want" "$work/contents" || fail "the package lacks $want: $(cat "$work/contents")"
done
dpkg-deb -e "$deb" "$work/control"
grep -qx /etc/lockproxy/lockproxy.toml "$work/control/conffiles" || fail "the configuration is no conffile: an upgrade would overwrite it"
for script in postinst prerm postrm; do sh -n "$work/control/$script"; done
pass "package: control, contents, conffiles, scripts"

lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$deb" >"$work/lintian" 2>&1 || fail "lintian: $(cat "$work/lintian")"
pass "package: lintian finds nothing"

# make deb leaves one package for this machine, and says how to install it.
mkdir "$work/only" && touch "$work/only/lockproxy_v0.0.0-1.gffff_amd64.deb" "$work/only/lockproxy_v0.0.0-1.gffff_arm64.deb"
said=$(cd "$work/here" && ONLY=deb deploy/release.sh "$work/only" $version linux/amd64)
[ "$said" = "sudo apt install $work/only/lockproxy_${version}_amd64.deb" ] || fail "make deb says $said"
[ "$(cd "$work/only" && echo *)" = "lockproxy_v0.0.0-1.gffff_arm64.deb lockproxy_${version}_amd64.deb" ] || fail "make deb leaves $(ls "$work/only")"
cmp "$work/only/lockproxy_${version}_amd64.deb" "$deb" || fail "make deb makes another package than make release"
pass "package: make deb makes it alone, in place of an older one"

# The README's line, next to the packages for other machines, as after make release. Nothing is installed.
line=$(sed -n 's/.*`sudo apt \(install [^`]*\)`.*/\1/p' README.md)
mkdir -p "$work/apt/dist" && cp "$work"/{a,others}/lockproxy_*.deb "$work/apt/dist/"
(cd "$work/apt" && eval "apt-get --simulate $line") >"$work/apt/said" 2>&1 || fail "sudo apt $line: $(cat "$work/apt/said")"
grep -q '^Inst lockproxy (' "$work/apt/said" || fail "sudo apt $line: $(cat "$work/apt/said")"
pass "package: the README's line would install it"

dpkg-deb -x "$deb" "$work/root"
dead=$("$work/tools/links" -list "$work/root/usr/share/doc/lockproxy") || fail "the packaged pages have dead links: $dead"
pass "package: each link in its pages leads to a file in it"
[ "$("$work/root/usr/bin/lockproxy" --version)" = "lockproxy $version" ] || fail "the packaged binary says $("$work/root/usr/bin/lockproxy" --version)"
"$work/root/usr/bin/lockproxy" check --upstream redis://127.0.0.1:1 --config "$work/root/etc/lockproxy/lockproxy.toml" >"$work/check" || true
grep -q '^PASS  config' "$work/check" || fail "the packaged configuration: $(cat "$work/check")"
pass "package: its binary runs, and takes its configuration"

deploy/test-install.sh "$deb" "$version" >"$work/installed" || fail "the package, installed: $(cat "$work/installed")"
sed 's/^ok  /&package, /' "$work/installed"
passed=$((passed + $(wc -l <"$work/installed")))

share=$work/root/usr/share
bash -n "$share/bash-completion/completions/lockproxy" && zsh -n "$share/zsh/vendor-completions/_lockproxy" || fail "completion: not readable"
fish_says() { fish --no-config -c "source $share/fish/vendor_completions.d/lockproxy.fish; complete -C '$1'" | cut -f1 | tr '\n' ' '; }
[ "$(fish_says 'lockproxy --log-level d')" = "debug " ] || fail "completion: fish says $(fish_says 'lockproxy --log-level d')"
[ "$(fish_says 'lockproxy run --kil')" = "--kill-after " ] || fail "completion: fish says $(fish_says 'lockproxy run --kil')"
cat >"$work/complete.zsh" <<END
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($share/zsh/vendor-completions \\\$fpath); autoload -U compinit; compinit -u -D; echo rea''dy"
zpty -r shell said '*ready*'
zpty -w -n shell \$'lockproxy run --kil\t'
zpty -r shell said '*--kill-after*' && print completed
zpty -d shell
END
timeout 60 zsh -f "$work/complete.zsh" >"$work/zsh" || true
grep -q '^completed$' "$work/zsh" || fail "completion: zsh says $(cat "$work/zsh")"
pass "package: bash, zsh and fish complete its command line"

# In the image there is nothing but the binary and certificates, and it runs as a user that the system doesn't know.
mkdir "$work/image" && cp "$work/root/usr/bin/lockproxy" "$work/image/" && chmod 0755 "$work" "$work/image"
chroot --userspec=65532:65532 "$work/image" /lockproxy --listen 127.0.0.1:0 >"$work/said" 2>&1 &
image=$!
trap 'kill $image 2>/dev/null || true; rm -rf "$work"' EXIT
port=
for ((i = 0; i < 100 && !port; i++)); do
	sleep 0.1
	port=$(sed -n 's/.* listen=127\.0\.0\.1:\([0-9]*\).*/\1/p' "$work/said")
done
[ -n "$port" ] || fail "the binary alone in a root directory does not serve: $(cat "$work/said")"
exec 9<>"/dev/tcp/127.0.0.1/$port"
printf 'LOCK job 30\r\n' >&9
read -r -t 10 token <&9
[[ $token =~ ^:[1-9][0-9]+ ]] || fail "the binary alone in a root directory answers LOCK with $token"
said=$(chroot --userspec=65532:65532 "$work/image" /lockproxy top --once --url "redis://127.0.0.1:$port") && [[ $said = *job* ]] ||
	fail "the health check of compose.yaml says $said"
exec 9>&-
kill $image && wait $image || fail "the binary alone in a root directory ends with status $?"
pass "image: the binary serves alone in a root directory, as user 65532, and tells its health there"

said=$(MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z deploy/lockproxy.1 2>&1 >/dev/null)
[ -z "$said" ] || fail "manual page: $said"
pass "manual page: without warnings"

# The unit names what only an installed package has: the binary and the user.
sed -e "s|^ExecStart=/usr/bin|ExecStart=$work/root/usr/bin|; s|^User=.*|User=daemon|; s|^Group=.*|Group=daemon|" deploy/lockproxy.service >"$work/lockproxy.service"
cp deploy/lockproxy.socket "$work"
said=$(systemd-analyze verify --man=no "$work/lockproxy.service" "$work/lockproxy.socket" 2>&1 | grep -F lockproxy || true)
[ -z "$said" ] || fail "unit: $said"
exposure=$(systemd-analyze security --offline=true --no-pager "$work/lockproxy.service" 2>/dev/null | sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\).*/\1/p')
awk -v e="$exposure" 'BEGIN { exit !(e != "" && e < 3) }' || fail "unit: exposure level \"$exposure\", want less than 3"
pass "unit: verified, exposure level $exposure of 10"

"$work/tools/verify" manifests deploy/kubernetes/*.yaml >"$work/kinds" || fail "manifests"
pass "manifests: strictly of Kubernetes' types: $(cut -d' ' -f1 "$work/kinds" | tr '\n' ' ')"

grep -q '"specVersion"' "$work/a/lockproxy_${version}_linux_amd64.cdx.json" && grep -q 'pkg:golang/github.com/redis/go-redis/v9@' "$work/a/lockproxy_${version}_linux_amd64.cdx.json" ||
	fail "the bill of materials lacks what is built in"
pass "bill of materials: $(grep -c '"purl"' "$work/a/lockproxy_${version}_linux_amd64.cdx.json") components"

echo "$passed passed, 0 failed"
