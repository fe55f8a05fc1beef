# Sourced by the scripts of this folder: small runs that write over an older output. They
# work in folders of $work: `before`, what there is before a run, `new`, with the output of
# an undisturbed one, and `now`, where a run takes place. Needs source, program, work.

# command_of RUN: what is called, in words without spaces.
command_of() {
    case $1 in
    train) echo "$program" --recipe tiny.yaml --output out.h5 --threads 2 --quiet ;;
    weights) echo "$program" --recipe weights.yaml --quiet ;;
    convert) echo "$program" convert in.h5 out/ --quiet ;;
    esac
}

# prepare RUN: makes `before` and `new`; leaves `now` as the working folder.
prepare() {
    rm -rf "$work/before" "$work/new" "$work/now"
    mkdir -p "$work/before" "$work/now" && cd "$work/before" || return 1
    . "$source/tests/cli/tiny.sh"
    if [ "$1" = train ]; then
        tiny '  - finetune: {data: train, steps: 3, batch_size: 16, lr: 0.01}'
        "$program" --recipe tiny.yaml --output out.h5 --set seed=4 --quiet >../log 2>&1
    else
        tiny '  []'
        "$program" --recipe tiny.yaml --output in.h5 --quiet >../log 2>&1 &&
            "$program" --recipe tiny.yaml --output other.h5 --set seed=4 --quiet >>../log 2>&1
        cat >weights.yaml <<END
version: 1
model: in.h5
threads: 1
passes:
  - prune_ffn: {keep: 8, score: magnitude}
  - quantize: {dtype: int8}
output: out.h5
END
    fi
    case $1 in
    weights) mv other.h5 out.h5 ;;
    convert) "$program" convert other.h5 out/ --quiet >>../log 2>&1 && rm other.h5 ;;
    esac
    cp -r "$work/before" "$work/new" && cd "$work/new" || return 1
    $(command_of "$1") >>../log 2>&1
    [ $? = 0 ] && cd "$work/now" && fresh || { cat ../log; return 1; }
    if same new; then
        echo "$1: the older output is the new one"
        return 1
    fi
}

# fresh: the working folder is as before the run.
fresh() {
    rm -rf "$work/now"
    cp -r "$work/before" "$work/now" && cd "$work/now" || exit 1
}

# same OF: whether the output here is that of `old`, before the run, or of `new`.
same() {
    [ "$1" = new ] && of=$work/new || of=$work/before
    if [ -d "$of/out" ]; then
        diff -r "$of/out" out >/dev/null 2>&1
    else
        cmp -s "$of/out.h5" out.h5
    fi
}

# calls_of KIND: how many the run before made; `files`: all but of memory.
calls_of() {
    at=0
    for name in memory open read write sync rename remove map fork thread files struck used; do
        [ "$name" != "$1" ] || od -An -t u8 -j $((8 * at)) -N 8 "$work/counts" | tr -d ' '
        at=$((at + 1))
    done
}

# spread COUNT MOST: the numbers from 1 to COUNT, or MOST of them, evenly spread, with the
# first and the last.
spread() {
    awk -v n="$1" -v most="$2" 'BEGIN {
        if (n <= most) for (i = 1; i <= n; i++) print i
        else for (i = 0; i < most; i++) print 1 + int(i * (n - 1) / (most - 1) + 0.5)
    }'
}

# needs_plain_build: ends the script where libraries cannot be loaded before the program's.
needs_plain_build() {
    ldd "$program" | grep -qE 'lib(asan|tsan)' || return 0
    echo "skipped: LD_PRELOAD and sanitizers do not mix"
    exit 77
}
