#!/bin/sh
# Kills a run at random moments, with SIGKILL, and resumes it until it is done; then starts
# it again, until there were so many kills. Every run must end in the same bytes as one that
# was left alone.
#   kill_resume.sh KILLS SEED MEAN COMPRESS FLAG...
# MEAN is about how many seconds a run lives before it is killed. FLAGs name the recipe and
# no --output. Works in the current folder; prints one line, how many runs ended and after
# how many kills. KILL_LOG names a file for what each run tells.
set -u
kills=$1 seed=$2 mean=$3
shift 3
log=${KILL_LOG:-/dev/null}

"$@" --output whole.h5 --no-checkpoint >/dev/null 2>>"$log" || exit 1
awk -v seed="$seed" -v mean="$mean" -v kills="$kills" 'BEGIN {
    srand(seed)
    for (i = 0; i < kills; i++) printf "%.3f\n", 2 * mean * rand()
}' >moments

resume= killed=0 runs=0
while read -r moment <&3; do
    "$@" --output resumed.h5 $resume >/dev/null 2>>"$log" 3<&- &
    run=$!
    (sleep "$moment"; kill -9 $run) 2>/dev/null 3<&- &
    killer=$!
    wait $run 2>/dev/null
    code=$?
    if [ $code = 137 ]; then
        wait $killer 2>/dev/null
        killed=$((killed + 1))
        resume=--resume
        continue
    fi
    kill $killer 2>/dev/null
    wait $killer 2>/dev/null
    [ $code = 0 ] || { echo "a run ended with $code"; exit 1; }
    cmp whole.h5 resumed.h5 || exit 1
    [ ! -e resumed.h5.checkpoint ] || { echo "a checkpoint is left"; exit 1; }
    rm resumed.h5
    resume= runs=$((runs + 1))
done 3<moments
"$@" --output resumed.h5 $resume >/dev/null 2>>"$log" || { echo "the last run ended with $?"; exit 1; }
cmp whole.h5 resumed.h5 || exit 1
rm -f resumed.h5
echo "$((runs + 1)) runs after $killed kills: the same bytes"
