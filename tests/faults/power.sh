#!/bin/sh
# Loses the power behind every write, sync and change of names of the runs of runs.sh: the log
# that the shim keeps of them is replayed (replay.c). What is then found must be the old
# output or the new one, and nothing but the new one when the program has ended.
#   power.sh SHIM COMPRESS REPLAY [RUN...]
# Prints a line for each run, and exit code 1 if a state is wrong; 77 under sanitizers.
set -u
shim=$(realpath "$1") program=$(realpath "$2") replay=$(realpath "$3")
shift 3
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$work"' EXIT INT TERM
. "$source/tests/faults/runs.sh"
needs_plain_build
bad=0
for run in ${*:-train weights convert}; do
    prepare "$run" || exit 1
    [ "$run" = convert ] && output=out || output=out.h5
    # inodes of what was there before the run, before some of it goes
    cp -al "$work/now" "$work/kept"
    env LD_PRELOAD="$shim" FAULTS_FILE="$work/counts" FAULTS_LOG=1 $(command_of "$run") >/dev/null 2>&1 </dev/null || bad=1
    same new || { echo "$run: another output"; exit 1; }
    printf '%s: ' "$run"
    "$replay" "$work/counts" "$work/now" "$work/kept" "$work/before" "$work/new" "$output" >"$work/found" || bad=1
    tail -1 "$work/found"
    sed '$d' "$work/found" | head -20
    rm -rf "$work/kept"
done
exit $bad
