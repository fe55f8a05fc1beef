#!/bin/sh
# deb.sh BUILD SOURCE: packs a build as Debian packages, twice, and looks at what they hold,
# need and say. Skipped where there is no dpkg. scripts/test-package installs them.
set -eu
command -v dpkg-shlibdeps >/dev/null && command -v dpkg-deb >/dev/null || { echo "no dpkg-dev"; exit 77; }
build=$(cd "$1" && pwd)
source=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$*"; exit 1; }
export SOURCE_DATE_EPOCH=1700000000
for folder in first second; do
    (umask 022 && cpack --config "$build/CPackConfig.cmake" -B "$work/$folder" \
        -D CPACK_PACKAGING_INSTALL_PREFIX=/usr -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >log 2>&1) ||
        { cat log; fail "not packed"; }
done
ls first/*.deb >packages
[ "$(wc -l <packages)" = 3 ] || { cat packages; fail "not three packages"; }
while read -r package; do
    cmp "$package" "second/${package#first/}" || fail "other bytes the second time"
    dpkg-deb --contents "$package" >contents
    awk '$2 != "root/root" {print; wrong = 1} END {exit wrong}' contents || fail "not of root"
    dpkg-deb --extract "$package" root
done <packages

# What they need are libraries that are run, each in the list of these; the library
# names its own version.
field() { dpkg-deb --field first/"$1"_*.deb "$2"; }
program=$(sed -n 's|^first/\(compress[a-z-]*\)_.*|\1|p' packages)
library=$(sed -n 's|^first/\(libcompress[0-9.]*\)_.*|\1|p' packages)
for package in "$program" "$library"; do
    field "$package" Depends | tr ',|' '\n\n' | sed 's/ *(.*//; s/ //g' | sort -u >needs
    [ -s needs ] || fail "$package needs nothing"
    grep -e '-dev$' needs && fail "$package needs what is for building"
    { "$source/scripts/deps" run; "$source/scripts/deps" run-onednn; echo libc6; } | sort >run
    # "libopenblas0 | libblas.so.3" names what else would do.
    grep -v '\.so\.' needs | comm -23 - run >missing
    # A build with MPI needs these as well.
    grep -v -e '^libopenmpi' -e '^libmpich' missing >more || true
    # One with the shared HDF5 (COMPRESS_STATIC_HDF5=OFF, or not on x86-64) this.
    [ -e "$build/hdf5_inside.o" ] || sed -i '/^libhdf5/d' more
    [ ! -s more ] || { cat more; fail "$package needs more than scripts/deps run"; }
done
field libcompress-dev Depends | grep -q "^$library (= " || fail "libcompress-dev does not name its library"
dpkg-deb --control first/"$library"_*.deb control
grep -q "^libcompress " control/shlibs && grep -q ldconfig control/triggers

# No libraries for networks, which Debian's shared HDF5 brings (MPI talks to networks itself).
ldd "root/usr/bin/$program" $(find root/usr/lib -name 'libcompress.so.0*') >libraries
grep -q libmpi libraries || ! grep -e curl -e krb5 -e ldap -e ssh -e libssl libraries ||
    fail "program or library bring libraries for networks"

# The program runs from there, and the manual is where man finds it.
root/usr/bin/"$program" --version >version
grep -q "$(field "$program" Version)" version || fail "another version"
gzip -t "root/usr/share/man/man1/$program.1.gz"
for package in "$program" "$library" libcompress-dev; do
    [ -s "root/usr/share/doc/$package/copyright" ] || fail "no copyright of $package"
    gzip -t "root/usr/share/doc/$package/changelog.gz"
done
echo "three packages, the same bytes twice"
