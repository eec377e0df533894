# Read by scripts/demo, scripts/test and scripts/release: sets `python` to the first Python from 3.10 to 3.14 that works, or ends with a sentence.
# shellcheck shell=sh disable=SC2034,SC2154
python=
reason=
for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 /usr/bin/python3 /usr/local/bin/python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if said=$("$candidate" -I -B "$here/prepare/suitable.py" 2>/dev/null); then
        python=$said
        break
    fi
    [ -n "$reason" ] || reason=$said
done
if [ -z "$python" ]; then
    echo "No Python from 3.10 to 3.14 can be used here: ${reason:-there is no python3 on the path}. Install one (Debian, Ubuntu: python3)." >&2
    exit 1
fi
