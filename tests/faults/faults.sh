#!/bin/sh
# Makes calls of `compress` fail, one after the other (shim.h), in three small runs:
#   train    a small ViT is trained for three steps on two threads, into out.h5
#   weights  the model in.h5 loses units and is quantised, into out.h5
#   convert  in.h5 becomes the Hugging Face folder out/
# Each writes over an older output. Of every run it is asked that it ends in time and by no
# signal; with exit code 0 only where the output is what an undisturbed run writes; else with
# the code that docs/recipes.md has for the cause, a message that names it, and the older
# output as it was, or all of the new one where the call failed behind that (telling of it,
# say); and that no temporary file is left, unless files could not be opened, synced or removed:
# then the next run must remove it.
#   faults.sh SHIM COMPRESS [MOST [RUN...]]
# MOST: of more calls than that of a kind so many are tried, evenly spread; 100 if not given.
# `quick`: a part of all that in seconds, every call of the kinds of which there are few.
# FAULTS_KINDS: which kinds of calls, all if not given. Prints a table of what was tried,
# before it a line for each run that is wrong; exit code 1 if there is one, 77 under
# AddressSanitizer, where nothing is tried.
set -u
shim=$(realpath "$1") program=$(realpath "$2") most=${3:-100}
[ $# -gt 3 ] && shift 3 && runs=$* || runs='train weights convert'
all_kinds='memory open read write sync rename remove map fork thread'
kinds=${FAULTS_KINDS:-$all_kinds}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
export OMP_WAIT_POLICY=passive
. "$source/tests/faults/runs.sh"

# What the kind and the error are told as, by the table of exit codes.
code_of() { case $1 in ENOMEM | EAGAIN) echo 7 ;; *) echo 6 ;; esac; }
words_of() {
    case $1 in
    ENOMEM | EAGAIN) echo 'memory|allocate|thread|start a process|Resource temporarily' ;;
    ENOSPC) echo 'No space left on device' ;;
    EDQUOT) echo 'Disk quota exceeded' ;;
    EROFS) echo 'Read-only file system' ;;
    EMFILE) echo 'Too many open files' ;;
    *) echo 'Input/output error' ;;
    esac
}
errors_of() {
    case $1 in
    memory | map) echo ENOMEM ;;
    open) echo EMFILE EIO ;;
    read) echo EIO ;;
    write) echo ENOSPC EDQUOT EIO ;;
    sync) echo EIO ENOSPC ;;
    rename) echo EROFS EIO ;;
    remove) echo EIO ;;
    fork) echo EAGAIN ENOMEM ;;
    thread) echo EAGAIN ;;
    esac
}

# Which kinds of calls of a run, which errors of a kind, and how often.
kinds_of() {
    case $most-$1 in
    quick-train) echo thread ;;
    quick-weights) echo memory open read write map fork ;;
    quick-convert) echo sync rename remove ;;
    *) echo "$kinds" ;;
    esac
}
quick_most() { case $kind in memory) echo 12 ;; write) echo 6 ;; *) echo 16 ;; esac; }
often_of() { [ $kind = remove ] && echo once good || few_of once good; }
few_of() { [ "$most" = quick ] && echo "$1" || echo "$@"; }

# What is wrong with the run that has just ended with $code; nothing where it is right.
fault_of() {
    [ "$code" != 124 ] || { echo 'it hangs'; return; }
    [ "$code" -lt 128 ] || { echo "ended by signal $((code - 128))"; return; }
    if [ "$code" = 0 ]; then
        same new || echo 'exit code 0, but the output is another'
    else
        if [ $misnamed_now = 0 ]; then
            [ "$code" = "$(code_of "$error")" ] || echo "exit code $code: $(head -1 log)"
            grep -qE "$(words_of "$error")" log || echo "the message does not name the cause: $(head -1 log)"
        fi
        grep -qi 'internal error' log && echo "$(head -1 log)"
        same old || same new || echo 'the older output is lost'
    fi
    left=$(find . -name '.*.tmp*' | head -1)
    [ -n "$left" ] || return
    case $kind in open | sync | remove) ;; *) echo "left behind: $left" ;; esac
    [ $kind$code != remove0 ] || grep -q 'is left beside it' log || echo "nothing tells of $left"
    find . -name '.*.tmp*' -exec touch -d '2 hours ago' {} + # of folders without their lock
    $(command_of "$run") >>log 2>&1 || echo "the next run fails: $(tail -1 log)"
    left=$(find . -name '.*.tmp*' | head -1)
    [ -z "$left" ] || echo "the next run leaves $left"
}

# The process that reads or writes HDF5 files may end, or report something else, when memory
# runs out within HDF5 or libseccomp: then the file is said to be damaged.
is_misnamed() {
    [ "$kind" = memory ] && { [ "$code" = 4 ] || [ "$code" = 6 ]; } &&
        grep -qE 'damaged HDF5 file|not a readable HDF5 file|process that was to (read|write) the file (was|ended|sent)|something else' log
}

try() { # NUMBER
    fresh
    timeout -s KILL 20 env LD_PRELOAD="$shim" FAULTS_FILE="$work/counts" FAULTS_KIND="$kind" \
        FAULTS_AT="$1" FAULTS_FOR="$often" FAULTS_ERROR="$error" $(command_of "$run") >log 2>&1
    code=$?
    [ $code != 137 ] || code=124
    tried=$((tried + 1))
    [ $code = 0 ] || ! same new || late=$((late + 1))
    [ -z "$(find . -name '.*.tmp*' | head -1)" ] || left_behind=$((left_behind + 1))
    misnamed_now=0
    ! is_misnamed || { misnamed_now=1 misnamed=$((misnamed + 1)); }
    fault=$(fault_of)
    if [ -n "$fault" ]; then
        wrong=$((wrong + 1))
        echo "$fault" | sed "s/^/$run: $kind $1 of $calls, $error $often: /"
    elif [ $code = 0 ]; then
        went_on=$((went_on + 1))
    fi
}

needs_plain_build
rows=$work/rows bad=0
for run in $runs; do
    prepare "$run" || exit 1
    for kind in $(kinds_of "$run"); do
        fresh
        env LD_PRELOAD="$shim" FAULTS_FILE="$work/counts" $(command_of "$run") >log 2>&1
        same new || { echo "$run: the shim alone changes the output"; cat log; exit 1; }
        calls=$(calls_of "$kind")
        for error in $(few_of $(errors_of "$kind")); do
            for often in $(often_of); do
                tried=0 wrong=0 went_on=0 late=0 left_behind=0 misnamed=0
                [ "$calls" -gt 0 ] || continue
                for number in $(spread "$calls" "$([ "$most" = quick ] && quick_most || echo "$most")"); do try "$number"; done
                printf '| %s | %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %d |\n' "$run" "$kind" $error $often \
                    "$calls" $tried $went_on $((tried - went_on - wrong)) $late $left_behind $misnamed $wrong >>"$rows"
                [ $wrong = 0 ] || bad=1
            done
        done
    done
done
echo '| run | calls | error | for | calls of an undisturbed run | tried | goes on, the same output | ends as it should | of these with the new output in place | of these with a temporary for the next run | of these with the file said to be damaged | wrong |'
echo '|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|'
cat "$rows"
exit $bad
