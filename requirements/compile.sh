#!/bin/sh
# Recompile the three hash locks from the *.in files (needs uv). The locks name no package host.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command requirements/compile.sh "$@"; }
lock run.in -o run.txt
lock test.in -c run.txt -o test.txt
lock dev.in -c test.txt -o dev.txt
