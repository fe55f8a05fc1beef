# Sourced by cases: old FILE ENDING uses a kept model: its hashes hold, what is written of it now is
# equal, and its last two numbers are those that it gave when it was written, to four digits.
old() {
    file=$SRC/tests/data/models/$1
    $COMPRESS verify "$file" | head -4
    $COMPRESS convert "$file" "now$2" --quiet
    $COMPRESS diff "$file" "now$2" --quiet | grep -e '^weights' -e '^output' -e '^logits' -e ^equal
    case $($COMPRESS inspect "$file") in
    *input_ids*)
        printf '\120\0\0\0\0\0\0\0%-80s' '{"input_ids":{"dtype":"I32","shape":[1,4],"data_offsets":[0,16]}}'
        printf '\7\0\0\0\3\0\0\0\37\0\0\0\1\0\0\0' ;;
    *)
        printf '\120\0\0\0\0\0\0\0%-80s' '{"pixel_values":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}'
        for i in $(seq 32); do printf '\0\0\200\077\0\0\0\0'; done ;;
    esac >in.safetensors
    $COMPRESS run "$file" --input in.safetensors --output out.safetensors --quiet
    tail -c 8 out.safetensors | od -An -tf4 | awk '{printf "%.4f %.4f\n", $1, $2}'
}
