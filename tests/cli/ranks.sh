#!/bin/sh
# Jobs of several ranks, as a user sees them: the same bytes at any number of ranks, one
# message for each failure, and nothing left behind.
#   ranks.sh MPIRUN FLAG...
# starts ranks by `MPIRUN FLAG... -n R`. Works in a folder of its own; says what is wrong,
# and `ok` at the end.
set -u
mpirun=$*
SRC=$PWD
COMPRESS=$COMPRESS_BIN
. "$SRC/tests/cli/tiny.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none

fail() {
    echo "ranks.sh: $1"
    [ ! -f told ] || cat told
    exit 1
}

# What every rank runs: rank $ODD works in the folder other/, with flags $MORE; each leaves its process's
# number, from which exec makes the program's.
cat >rank.sh <<'END'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo $$ >"pid.$rank"
[ "$rank" != "${ODD:-none}" ] || { cd other && set -- "$@" ${MORE:-}; }
trap '' XFSZ
exec "$@"
END
chmod +x rank.sh

# job RANKS FLAG...: runs the recipe; its messages, without mpirun's own, are in `told`.
job() {
    ranks=$1
    shift
    timeout 60 $mpirun -n "$ranks" ./rank.sh "$COMPRESS" "$@" >out 2>err
    code=$?
    grep -E '^[^ ]*:? ?(error|warning): |^    (hint|note): |interrupted' err >told
    return $code
}

# expect CODE ERRORS TEXT: how the last job ended, how many errors it told, and of what.
expect() {
    [ "$code" = "$1" ] || fail "exit code $code, expected $1 ($3)"
    [ "$(grep -c 'error: ' told)" = "$2" ] || fail "expected $2 errors ($3)"
    grep -q "$3" told || fail "expected: $3"
}

# Reports and results without the times of the machine, the memory of a process, the number
# of ranks and the warning of those that have no shard.
timeless() {
    grep -v -E '"(seconds|samples_per_second|milliseconds_per_sample|peak_memory|cores|ranks)":|per_second|^time ' "$1" |
        sed 's/"[^"]*ranks have no shard[^"]*", //'
}

# ---- the same bytes and numbers ----

# The recipe of most of what follows.
usual() {
    tiny '  - finetune: {data: train, epochs: 2, batch_size: 16}
  - diagnose: {data: train, batch_size: 6}
  - importance: {data: train, batch_size: 11}
  - prune_heads: {keep: 1}
  - prune_ffn: {score: reconstruction, reconstruct: true, data: train, samples: 50, keep: 12}
  - add_exits: {}
  - finetune: {data: train, epochs: 1, batch_size: 16, shards: 3}
  - calibrate_exits: {data: train, flops: 0.8, batch_size: 5}
  - quantize: {dtype: int8}
  - evaluate: {data: train, batch_size: 7, min: 1}
  - evaluate: {data: train, batch_size: 64, exits: each}'
}
usual
for ranks in 1 2 3 4; do
    job $ranks --recipe tiny.yaml --threads 2 --output out.h5 --force --report report.json ||
        fail "$ranks ranks: exit code $code"
    mv out.h5 $ranks.h5
    grep -q "^  \"ranks\": $ranks,$" report.json || fail "the report of $ranks ranks says $(grep ranks report.json)"
    timeless report.json >$ranks.json
    timeless out >$ranks.out
    for file in h5 json out; do
        cmp 1.$file $ranks.$file || fail "$ranks ranks are not as 1"
    done
    [ $ranks = 1 ] || [ "$(grep -c '^\[1/11\] finetune \.\.\.' err)" = 1 ] ||
        fail "progress of $ranks ranks is not told once"
done

# ---- ranks without a shard ----

# The step with the fewest shards is told of, with as many as there are threads.
grep -q 'tiny.yaml:.*warning: passes\[0\]: 2 of 4 ranks have no shard in step 1 (shards: 2): `shards: 8` would' err ||
    fail "idle ranks are not told"
grep -q '^threads used in training: 6 of 8 (shards: 2 to 3, 4 ranks of 2)' err || fail "$(grep 'threads used' err)"
job 4 --recipe tiny.yaml --threads 2 --output out.h5 --force --quiet --set passes.0.finetune.batch_size=2
grep -q '2 of 4 ranks have no shard in step 1 (shards: 2): its mini-batches have 2 samples' err ||
    fail "mini-batches smaller than ranks are not told"
job 3 --recipe tiny.yaml --threads 3 --output out.h5 --force --set passes.0.finetune.shards=3
grep -q 'have no shard' err && fail "ranks with a shard each are warned of"
grep -q '^threads used in training: 9 of 9 (shards: 3, 3 ranks of 3)' err || fail "$(grep 'threads used' err)"

# ---- another number of ranks goes on ----

# The job is killed when it has kept the state of a training; one rank goes on.
tiny '  - finetune: {data: train, epochs: 2000, batch_size: 16, shards: 3}'
echo 'checkpoint: {minutes: 0.002}' >>tiny.yaml
timeout 60 $mpirun -n 3 ./rank.sh "$COMPRESS" --recipe tiny.yaml --output on.h5 --quiet \
    --events events >out 2>err &
mpi=$!
for i in $(seq 600); do
    sleep 0.1
    ! grep -q '"training":true' events 2>/dev/null || break
done
kill -9 "$(cat pid.1)"
wait $mpi && fail "the training has ended before it was killed"
[ ! -e on.h5 ] || fail "a job that was killed has written its output"
job 1 --recipe tiny.yaml --output on.h5 --resume --events events2 ||
    fail "resuming: exit code $code"
grep -m 1 progress events2 | grep -q '"done":1,' && fail "training begins from the beginning"
job 1 --recipe tiny.yaml --output whole.h5 --no-checkpoint || fail "exit code $code"
cmp on.h5 whole.h5 || fail "one rank that goes on for three is not as one alone"
rm -f events events2 on.h5 whole.h5

# ---- failures ----

usual
echo old >kept.h5
cp -r images.idx labels.idx tiny.yaml other 2>/dev/null || { mkdir other; cp images.idx tiny.yaml other; }

# A rank without the data.
ODD=2 job 3 --recipe tiny.yaml --output kept.h5 --force
expect 6 1 'labels.idx: error: rank 2: cannot open'

# A rank with other data.
cp labels.idx other
printf '\001' | dd of=other/labels.idx bs=1 seek=20 conv=notrunc 2>/dev/null
ODD=1 job 3 --recipe tiny.yaml --output kept.h5 --force
expect 4 1 'rank 1: data set "train" (.*labels.idx) is another one than on rank 0'

# A rank with another recipe; all with a wrong one.
sed 's/epochs: 2/epochs: 3/' tiny.yaml >other/tiny.yaml
ODD=1 job 2 --recipe tiny.yaml --output kept.h5 --force
expect 3 1 'rank 1: the recipe is another one than on rank 0'
sed 's/quantize/quantise/' tiny.yaml >wrong.yaml
job 3 --recipe wrong.yaml --output kept.h5 --force
expect 3 1 'wrong.yaml:.*unknown pass "quantise"'

# A rank with other kernels.
cp tiny.yaml other
ODD=1 MORE='--products openblas' job 2 --recipe tiny.yaml --output kept.h5 --force
expect 2 1 'rank 1: what multiplies matrices, OpenBLAS, is another one than on rank 0'
grep -q 'hint: --products has to' told || fail "no hint of --products"
ODD=1 MORE='--processor v2' job 2 --recipe tiny.yaml --output kept.h5 --force
expect 2 1 'rank 1: the set of kernels, v2, is another one than on rank 0'

# A gate that does not hold: one message, the report of rank 0.
sed 's/min: 1}/min: 101}/' tiny.yaml >gate.yaml
job 3 --recipe gate.yaml --output kept.h5 --force --report gate.json
expect 8 1 'gate.yaml:.*error: '
[ -s gate.json ] || fail "no report of a gate that did not hold"

# Rank 0 has no room to write the result: its files end at a limit, which comes with the
# first event, as MPI may make files of its own when ranks join.
if command -v prlimit >/dev/null; then
    mkfifo first
    { read -r event && prlimit --pid "$(cat pid.0)" --fsize=4096 && cat >rest; } <first &
    limiting=$!
    job 3 --recipe tiny.yaml --output kept.h5 --force --no-checkpoint --events first
    kill $limiting 2>/dev/null
    wait $limiting
    expect 6 1 'kept.h5.*error: .*File too large'
    grep -q run_end rest || fail "no event of the end of a run without room"
    rm -f first rest
fi

# Commands that ranks do not share.
timeout 60 $mpirun -n 2 "$COMPRESS" inspect 1.h5 >out 2>err
code=$?
grep 'error: ' err >told
expect 2 1 'inspect. runs in one process, found 2 ranks'

# ---- ends from outside ----

# alive RANK: whether the rank's process is there.
alive() { kill -0 "$(cat pid.$1)" 2>/dev/null; }

# launch: a job of 3 ranks that trains for long; $mpi is mpirun's process. start: until it
# trains, with pids known.
sed 's/epochs: 2/epochs: 100000/' tiny.yaml >long.yaml
launch() {
    rm -f pid.*
    timeout 60 $mpirun -n 3 ./rank.sh "$COMPRESS" --recipe long.yaml --output kept.h5 \
        --force --quiet --events events >out 2>err &
    mpi=$!
}
start() {
    launch
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.5
        grep -q step_begin events 2>/dev/null && return
    done
    fail "training has not begun"
}

# A rank that is killed ends the others.
start
kill -9 "$(cat pid.1)"
wait $mpi
for i in 1 2 3 4 5 6 7 8 9 10; do
    alive 0 || alive 2 || break
    sleep 0.5
done
alive 0 && fail "rank 0 outlives a rank that was killed"
alive 2 && fail "rank 2 outlives a rank that was killed"
rm -f events

# mpirun that is asked to end.
told_once() {
    [ "$(grep -c -E 'error: .*stopped|^interrupted' err)" -le 1 ] ||
        { cp err told; fail "an interruption $1 is told more than once"; }
}
start
kill -TERM $mpi
wait $mpi
for i in 1 2 3 4 5 6 7 8 9 10; do
    alive 0 || alive 1 || alive 2 || break
    sleep 0.5
done
alive 0 && fail "rank 0 goes on after SIGTERM"
told_once "of training"
rm -f events

# Likewise at once: the ranks may not know each other yet.
for moment in 0.1 0.2 0.4; do
    launch
    sleep $moment
    kill -TERM $mpi
    wait $mpi
    told_once "after $moment s"
    rm -f events
done

[ "$(cat kept.h5)" = old ] || fail "a failed job has changed an output"
rm -rf kept.h5.checkpoint
left=$(ls -A | grep -E 'kept\.h5.|\.part$|\.tmp' || true)
[ -z "$left" ] || fail "left behind: $left"
echo ok
