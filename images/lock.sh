#!/bin/sh
# Writes the lock files of the images from their *.in files. Needs `uv` on the path; they name no index host.
set -eu
cd "$(dirname "$0")"
lock() {
    image=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all: \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        "$image/requirements.in" "$@" --output-file "$image/requirements.txt"
    printf '# Made by images/lock.sh from requirements.in: change that one.\n' |
        cat - "$image/requirements.txt" >"$image/requirements.tmp"
    mv "$image/requirements.tmp" "$image/requirements.txt"
    echo "$image/requirements.txt"
}
# what the chart's image has stays at its version
lock hub --constraint hub/chart-image.txt
lock singleuser
