#!/bin/sh
# Writes the lock files of this folder from the *.in files. Needs `uv` on the path; the lock files name no index host.
set -eu
cd "$(dirname "$0")"
lock() {
    name=$1
    shift
    uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --only-binary :all: \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --override overrides.in "$name.in" "$@" \
        --output-file "$name.txt"
    printf '# Made by requirements/lock.sh from %s.in: change that one.\n' "$name" | cat - "$name.txt" >"$name.tmp"
    mv "$name.tmp" "$name.txt"
    echo "$name.txt"
}
lock demo
lock test --constraint demo.txt
lock sso --no-deps --constraint test.txt
lock hub5
lock bootstrap
lock node
lock compiler
lock release
lock proxies
lock caddy --constraint proxies.txt
lock apps
