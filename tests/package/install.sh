#!/bin/sh
# install.sh BUILD: installs a build into a temporary folder, as a package would be made
# of it, and uses program, recipes and models from there.
set -eu
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
DESTDIR=$work/root cmake --install "$build" --prefix /usr --component program >/dev/null
share=$work/root/usr/share
cd "$work"
for file in "$work/root/usr/bin/compress" "$share/man/man1/compress.1" \
    "$share/bash-completion/completions/compress" "$share/zsh/site-functions/_compress" \
    "$share/fish/vendor_completions.d/compress.fish" "$share/doc/compress/LICENSE" \
    "$share/doc/compress/docs/changelog.md" "$share/compress/recipes/minivit.yaml"; do
    [ -s "$file" ] || { echo "not installed: $file"; exit 1; }
done
grep -q '"\$schema"' "$share/compress/recipe.schema.json"
if command -v groff >/dev/null; then
    groff -man -Tascii -P-cbou -ww "$share/man/man1/compress.1" >page 2>faults
    [ ! -s faults ] || { cat faults; exit 1; }
    grep -q '^EXIT STATUS' page
fi

# A shipped recipe is planned with its data, a model that it goes with made smaller;
# nothing is written beside what is installed.
chmod -R a-w "$work/root"
find "$work/root" | sort >before
compress=$work/root/usr/bin/compress
"$compress" plan --recipe "$share/compress/recipes/minivit.yaml" >plan
grep -q weight_multiplex plan
cat >small.yaml <<END
version: 1
model: $share/compress/recipes/models/bert_authors.h5
passes:
  - quantize: {dtype: int8}
output: small.h5
END
"$compress" --recipe small.yaml --quiet >/dev/null
"$compress" verify small.h5 >/dev/null
find "$work/root" | sort | diff before -
echo "installed, and run from there"
