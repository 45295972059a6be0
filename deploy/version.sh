#!/usr/bin/env bash
# Prints the version of the commit in the working directory, and what Debian calls it. Of two commits in a row the later one has the
# higher version, also between tags. A commit without a tag before it is named by its time.
#
#   deploy/version.sh [VERSION]
set -euo pipefail
version=${1:-$(git describe --tags --match 'v[0-9]*' 2>/dev/null ||
	TZ=UTC git log -1 --abbrev=12 --date=format-local:%Y%m%d.%H%M%S --format=v0.0.0-%cd.g%h)}
# In a Debian version "-" would begin a revision. "~" comes before the release, "+" after the tag from which git counts commits.
echo "$version $(sed -E 's/^v//; s/-([0-9]+)-(g[0-9a-f]+)$/+\1.\2/; s/-/~/g' <<<"$version")"
