#!/bin/sh
# Runs go vet on all packages, with build tags, and then what else it is told to.
#
#	lint.sh TAGS [staticcheck] [govulncheck]
#
# go fetches and builds the two when it needs them. Where they, or the database of vulnerabilities,
# cannot be reached, it says so and goes on.
set -u
cd "$(dirname "$0")/../.."
go=${GO:-go}
tags=$1
shift
failed=0
$go vet -tags "$tags" ./... || failed=1
for name; do
	case $name in
	staticcheck) tool="honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags" ;;
	govulncheck) tool="golang.org/x/vuln/cmd/govulncheck@v1.9.0 -tags" ;;
	*)
		echo "lint.sh knows no $name" >&2
		exit 2 ;;
	esac
	if out=$($go run $tool "$tags" ./... 2>&1); then
		echo "$name: no findings"
		continue
	fi
	case $out in
	*"fetching vulnerabilities"* | *"dial tcp"* | *"Forbidden"*)
		echo "$name: NOT CHECKED, since what it needs cannot be reached: $(echo "$out" | grep -m 1 -E 'fetching|dial|Forbidden')" ;;
	*)
		echo "$name:"
		echo "$out"
		failed=1 ;;
	esac
done
exit $failed
