#!/bin/sh
# Runs go vet, staticcheck and govulncheck on all packages, with the build tags that it is given. go
# fetches and builds the two when it needs them. Where they, or the database of vulnerabilities, cannot
# be reached, it says so and goes on.
set -u
cd "$(dirname "$0")/../.."
go=${GO:-go}
failed=0
$go vet -tags "$1" ./... || failed=1
check() {
	name=$1
	shift
	if out=$($go run "$@" ./... 2>&1); then
		echo "$name: no findings"
		return
	fi
	case $out in
	*"fetching vulnerabilities"* | *"dial tcp"* | *"Forbidden"*)
		echo "$name: NOT CHECKED, since what it needs cannot be reached: $(echo "$out" | grep -m 1 -E 'fetching|dial|Forbidden')" ;;
	*)
		echo "$out"
		failed=1 ;;
	esac
}
check staticcheck honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags "$1"
check govulncheck golang.org/x/vuln/cmd/govulncheck@v1.9.0
exit $failed
