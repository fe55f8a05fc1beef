# Sourced by cases and by scripts/test-processors: the shipped recipes at --processor v3
# against the hashes that every machine must find.
#   has_v3            whether this processor has AVX2, FMA and the rest of x86-64-v3
#   v3_tiny           prints "tiny HASH": a small recipe, in the working folder
#   v3_recipe NAME    prints "NAME HASH": recipes/NAME.yaml
#   v3_compare        reads such lines and prints those that are not in
#                     tests/cli/processor_v3_hashes
# A hash is that of IR text, weights and Gaussians (`output: {hash}` of --report). EMULATOR,
# where given, stands before the program.

has_v3() {
    for flag in avx2 fma bmi1 bmi2 f16c movbe abm; do
        grep -qw $flag /proc/cpuinfo || return 1
    done
}

v3_hash() { # NAME RECIPE: with the variables that --processor sets, for emulators' sake
    COMPRESS_PROCESSOR=v3 OPENBLAS_CORETYPE=Haswell OPENBLAS_L2_SIZE=256 ${EMULATOR:-} \
        "$COMPRESS" --recipe "$2" --output "$out/$1.h5" --report "$out/$1.json" \
        --processor v3 --quiet >"$out/$1.log" 2>&1 || cat "$out/$1.log"
    echo "$1 $(sed -n '/^  "output"/,/^  }/s/^    "hash": "\([0-9a-f]*\)".*/\1/p' "$out/$1.json")"
}

v3_tiny() {
    . "$SRC/tests/cli/tiny.sh"
    tiny '  - finetune: {data: train, epochs: 2, batch_size: 16, lr: 0.01}
  - remove_layer: {drop: [0]}
  - finetune: {data: train, epochs: 1, batch_size: 16, lr: 0.01, optimizer: sgd}'
    out=$PWD v3_hash tiny tiny.yaml
}

v3_recipe() {
    out=$PWD
    (cd "$SRC" && v3_hash "$1" "recipes/$1.yaml")
}

v3_compare() {
    while read -r name hash; do
        grep -qx "$name $hash" "$SRC/tests/cli/processor_v3_hashes" ||
            echo "$name: expected $(sed -n "s/^$name //p" "$SRC/tests/cli/processor_v3_hashes"), found $hash"
    done
}
