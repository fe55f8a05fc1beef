# Sourced by cases: runs a shipped recipe in a reduced size, from the source folder.
#   once FILE THREADS RECIPE SETTING...   runs it once, without checkpoints: whether a slow
#                                         machine would keep one is no matter here
#   reduced RECIPE SETTING...             runs it with 1 and with 2 threads: one.h5 and
#                                         two.h5 must be the same bytes, and fewer than
#                                         those of the recipe's model
#   shape MODEL                           what inspect finds, without the table of storages
#                                         and what is measured or chosen by training
# The settings of a case shorten training to 2 steps, data sets to a few samples, and open
# the gates.

once() (
    output=$1 threads=$2 recipe=$3
    shift 3
    for setting; do
        shift
        set -- "$@" --set "$setting"
    done
    cd "$SRC"
    "$COMPRESS" --recipe "recipes/$recipe.yaml" --output "$output" --threads "$threads" \
        --set checkpoint.every=0 --quiet "$@" >/dev/null
    code=$?
    [ $code = 0 ] || echo "exit $code"
)

reduced() {
    once "$PWD/one.h5" 1 "$@"
    once "$PWD/two.h5" 2 "$@"
    cmp one.h5 two.h5 && echo "$1: the same bytes twice"
    input=$(sed -n 's/^model: .*\(models\/[a-z_]*\.h5\).*/\1/p' "$SRC/recipes/$1.yaml")
    [ -z "$input" ] || [ "$(wc -c <one.h5)" -lt "$(wc -c <"$SRC/recipes/$input")" ] ||
        echo "$1: not smaller than $input"
}

shape() {
    $COMPRESS inspect "$1" | sed -e '/^storage  /,/^$/d' -e 's/ (input .*)//' \
        -e 's/, accuracy .*//' -e 's/=\[[^]]*\]/=[WHICH]/g' -e 's/ below [0-9.]*/ below WHAT/' \
        -e 's/ of model [0-9a-f]*$/ of model HASH/'
}
