#!/bin/sh
# Recompile the four hash locks from the *.in files (needs uv). The locks name no package host.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command requirements/compile.sh "$@"; }
lock run.in -o run.txt
lock embedded.in -c run.txt -o embedded.txt
lock test.in -c embedded.txt -o test.txt
lock dev.in -c test.txt -o dev.txt
