#!/bin/sh
# library.sh BUILD SOURCE: installs the library into a temporary folder and builds the
# examples against it from outside the tree: with pkg-config, shared and static, with CMake,
# and from Python where it is installed. What they give is compared with the program.
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$*"; exit 1; }
for component in program library development; do
    cmake --install "$build" --prefix "$work/usr" --component $component >/dev/null
done
program=$work/usr/bin/compress
lib=$(dirname "$(find "$work/usr" -name libcompress.a)")
models=$work/usr/share/compress/recipes/models
export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"

# Nothing is shown but what the header declares.
sed -n 's/^COMPRESS_API.*[ *]\(compress_[a-z_]*\)(.*/\1/p' "$work/usr/include/compress.h" | sort >declared
nm -D --defined-only "$lib/libcompress.so" | awk '$2 == "T" {sub("@.*", "", $3); print $3}' | sort >shared
nm -g --defined-only "$lib/libcompress.a" | awk 'NF == 3 {print $3}' | sort >static
[ -s declared ] || fail "no functions declared"
diff declared shared || fail "the shared library shows other functions"
diff declared static || fail "the static library shows other functions"

# With HDF5 inside it loads no libraries for networks, and shows none of HDF5's names (above).
if [ -e "$build/hdf5_inside.o" ]; then
    ldd "$lib/libcompress.so" >libraries
    grep -e libhdf5 libraries && fail "the shared library loads HDF5"
    grep -q libmpi libraries || ! grep -e curl -e krb5 -e ldap -e ssh -e libssl libraries ||
        fail "the shared library brings libraries for networks"
    readelf -d "$lib/libcompress.so" | grep TEXTREL && fail "code that is written to when it is loaded"
fi

# By pkg-config: the shared library, then the static one.
cp "$source"/docs/examples/*.c .
cc -std=c11 -Wall -Wextra -Werror shrink.c $(pkg-config --cflags --libs compress) -o shrink
./shrink "$models/bert_authors.h5" small.h5
"$program" verify small.h5 >past
grep -q " quantize: " past || fail "not quantised"
./shrink absent.h5 x.h5 2>messages && fail "a file that is not there was read"
[ $? = 6 ] && grep -q 'absent.h5' messages || fail "a wrong status or message"
cc -std=c11 outputs.c -I"$work/usr/include" "$lib/libcompress.a" \
    $(pkg-config --static --libs compress | sed 's/-lcompress//') -o outputs
./outputs "$models/llama_shakespeare.h5" 2 7 5 3 >static.txt
ldd ./outputs | grep -q libcompress && fail "linked with the shared library"

# A conversation goes on with what was said: both lines are parts of one text.
tokenizer=$work/usr/share/compress/recipes/data/shakespeare/tokenizer.json
cc -std=c11 -Wall -Wextra -Werror chat.c $(pkg-config --cflags --libs compress) -o chat
printf 'the king\nand the queen\n' | ./chat "$models/llama_shakespeare.h5" "{tokenizer: $tokenizer, context: 200}" >said
[ "$(wc -l <said)" -ge 2 ] || { cat said; fail "no conversation"; }
"$program" generate "$models/llama_shakespeare.h5" --tokenizer "$tokenizer" --max-tokens 40 --stop "
" --prompt "the king
" >first.txt
[ "the king
$(head -1 said)" = "$(cat first.txt)" ] || { cat first.txt said; fail "another conversation"; }

# What the program says of texts the library says, too.
words=$work/usr/share/compress/recipes/data/authors/vocab.txt
cc -std=c11 -Wall -Wextra -Werror classify.c $(pkg-config --cflags --libs compress) -o classify
for i in $(seq 20); do echo "to be or not to be $i"; done >texts
./classify "$models/bert_authors.h5" "{tokenizer: $words}" <texts | tr -d ' \n' | grep -o '"label":"[^"]*","score":[0-9.]*' >labels
sed 's/.*/{"text": "&"}/' texts | "$program" run "$models/bert_authors.h5" --tokenizer "$words" --jsonl - --json |
    grep -o '"label":"[^"]*","score":[0-9.]*' >program_labels
[ "$(wc -l <labels)" = 20 ] || { cat labels; fail "texts without a class"; }
cut -d: -f1,2 labels >a && cut -d: -f1,2 program_labels | cmp a - || fail "other classes than the program's"

# So are translations.
recipes=$work/usr/share/compress/recipes
cc -std=c11 -Wall -Wextra -Werror translate.c $(pkg-config --cflags --libs compress) -o translate
cut -f1 "$recipes/data/tatoeba/test.tsv" | sed -n '2,21p' >sentences
options="{tokenizer: $recipes/data/tatoeba/ru.json, target_tokenizer: $recipes/data/tatoeba/en.json, beam: 2}"
./translate "$models/transformer_tatoeba.h5" "$options" <sentences | tr -d ' \n' | grep -o '"text":"[^"]*"' >translated
"$program" generate "$models/transformer_tatoeba.h5" --tokenizer "$recipes/data/tatoeba/ru.json" --beam 2 \
    --target-tokenizer "$recipes/data/tatoeba/en.json" --prompts sentences --output program.jsonl --quiet
tr -d ' ' <program.jsonl | grep -o '"text":"[^"]*"' | cmp translated - || fail "other translations than the program's"
[ "$(sort -u translated | wc -l)" -gt 10 ] || { cat translated; fail "one translation of all"; }

# Several threads answer at once, in whatever order, what one does.
cc -std=c11 -Wall -Wextra -Werror serve.c $(pkg-config --cflags --libs compress) -pthread -o serve
for i in $(seq 40); do echo "$((i % 7 + 2)) 7 5 $((i % 3 + 3))"; done >lines
./serve "$models/llama_shakespeare.h5" 1 <lines >one.txt
./serve "$models/llama_shakespeare.h5" 4 <lines | sort -n >four.txt
[ "$(wc -l <one.txt)" = 40 ] || { cat one.txt; fail "lines without an answer"; }
cmp one.txt four.txt || fail "other answers on four threads"
[ "$(cut -d' ' -f3 one.txt | sort -u | wc -l)" -gt 5 ] || fail "one answer to all lines"

# By CMake, both.
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(outside C)
find_package(compress 0.1 REQUIRED)
add_executable(by_shared outputs.c)
target_link_libraries(by_shared compress::compress)
add_executable(by_static outputs.c)
target_link_libraries(by_static compress::static)
END
cmake -S . -B outside -DCMAKE_PREFIX_PATH="$work/usr" >log 2>&1 && cmake --build outside >>log 2>&1 ||
    { cat log; fail "no build by CMake"; }
for program_of in by_shared by_static; do
    outside/$program_of "$models/llama_shakespeare.h5" 2 7 5 3 | cmp - static.txt
done

# A plug-in is built against its header alone, and goes with the program and the library.
cc -std=c11 -Wall -Wextra -Werror -shared -fPIC zero_smallest.c $(pkg-config --cflags compress) -o zero.so -lm
printf 'version: 1\nmodel: %s\npasses:\n  - zero_smallest: {share: 0.25}\noutput: zeros.h5\n' \
    "$models/bert_authors.h5" >zero.yaml
"$program" --recipe zero.yaml --plugin ./zero.so --quiet >/dev/null
cat >plugged.c <<'END'
#include <compress.h>
#include <stdio.h>
int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    if (argc != 3 || compress_open(&context, 1) != COMPRESS_OK) return 1;
    CompressStatus status = compress_load(context, argv[1], &model);
    for (int i = 0; status == COMPRESS_OK && i < 2; i++)
        status = compress_add_plugin(context, "./zero.so");
    if (status == COMPRESS_OK)
        status = compress_apply(context, model, "[zero_smallest: {share: 0.25}]", NULL);
    if (status == COMPRESS_OK) status = compress_save(context, model, argv[2], NULL);
    if (status != COMPRESS_OK) fputs(compress_messages(context), stderr);
    compress_free_model(model);
    compress_close(context);
    return status;
}
END
cc -std=c11 -Wall -Wextra -Werror plugged.c $(pkg-config --cflags --libs compress) -o plugged
./plugged "$models/bert_authors.h5" plugged.h5
"$program" diff zeros.h5 plugged.h5 --no-outputs --quiet | grep -q '^weights: .* equal$' ||
    { "$program" diff zeros.h5 plugged.h5 --no-outputs --quiet; fail "other weights by the library"; }

# From C++ the header is the same; from Python the text is the program's.
if command -v c++ >/dev/null; then
    echo '#include <compress.h>
#include <compress_plugin.h>
int main() { return compress_version()[0] == 0; }' >header.cc
    c++ header.cc $(pkg-config --cflags --libs compress) -o header && ./header
fi
if command -v python3 >/dev/null; then
    python3 "$source/docs/examples/write.py" "$lib/libcompress.so" "$models/llama_shakespeare.h5" \
        "$tokenizer" 'the king' >python.txt
    "$program" generate "$models/llama_shakespeare.h5" --tokenizer "$tokenizer" \
        --prompt 'the king' --max-tokens 20 >program.txt
    [ "$(cat program.txt)" = "the king$(cat python.txt)" ] || { cat python.txt program.txt; fail "other text"; }
fi
echo "built outside the tree, shared and static, and run"
