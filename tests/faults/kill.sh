#!/bin/sh
# Kills the runs of runs.sh before a call of the system, by SIGKILL, and runs them once more.
# The output must be the old one or the new one when the run is dead; the next run must end
# well, with the new output, and leave no temporary. A folder that was about to be put in
# place, or replaced, has no lock any more: it is removed when it is an hour old, which these
# are made to be; they are counted.
#   kill.sh SHIM COMPRESS [MOST [RUN...]]
# MOST: of more calls than that so many are tried, evenly spread; 100 if not given; `quick`: 12.
# Prints a table, before it a line for each run that is wrong; exit code 1 if there is one, 77
# under sanitizers.
set -u
shim=$(realpath "$1") program=$(realpath "$2") most=${3:-100}
[ $# -gt 3 ] && shift 3 && runs=$* || runs='train weights convert'
[ "$most" != quick ] || most=12
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
. "$source/tests/faults/runs.sh"
needs_plain_build

# What is wrong behind the run that was killed before call $1.
fault_of() {
    [ "$(calls_of struck)" != 0 ] || return # a run with fewer calls, by a thread
    [ "$code" = 137 ] || { echo "exit code $code: $(head -1 log)"; return; }
    same old || same new || echo 'the output is neither the old nor the new one'
    [ -z "$(temporaries)" ] || with_temporary=$((with_temporary + 1))
    $(command_of "$run") >log 2>&1 || echo "the next run fails: $(tail -1 log)"
    same new || echo 'the next run writes another output'
    left=$(temporaries)
    if [ -n "$left" ]; then
        [ -d "$left" ] && [ ! -e "$left/.lock" ] || echo "the next run leaves $left"
        late=$((late + 1))
        touch -d '2 hours ago' "$left"
        $(command_of "$run") >log 2>&1
        [ -z "$(temporaries)" ] || echo "nothing removes $left"
    fi
}
temporaries() { find . -name '.*.tmp*' | sort | head -1; }

rows=$work/rows bad=0
for run in $runs; do
    prepare "$run" || exit 1
    fresh
    env LD_PRELOAD="$shim" FAULTS_FILE="$work/counts" $(command_of "$run") >log 2>&1
    calls=$(calls_of files) tried=0 old=0 with_temporary=0 late=0 wrong=0
    for number in $(spread "$calls" "$most"); do
        fresh
        env LD_PRELOAD="$shim" FAULTS_FILE="$work/counts" FAULTS_KIND=files FAULTS_AT="$number" \
            FAULTS_ERROR=KILL $(command_of "$run") >log 2>&1
        code=$?
        tried=$((tried + 1))
        ! same old || old=$((old + 1))
        fault_of "$number" >"$work/fault" 2>&1
        [ ! -s "$work/fault" ] || wrong=$((wrong + 1))
        sed "s/^/$run: killed before call $number of $calls: /" "$work/fault"
    done
    printf '| %s | %d | %d | %d | %d | %d | %d | %d |\n' "$run" "$calls" $tried $old $((tried - old)) \
        $with_temporary $late $wrong >>"$rows"
    [ $wrong = 0 ] || bad=1
done
echo '| run | calls | killed before | the old output | the new one | with a temporary | of these removed when an hour old | wrong |'
echo '|---|--:|--:|--:|--:|--:|--:|--:|'
cat "$rows"
exit $bad
