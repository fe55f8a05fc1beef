/* Text starts: see text_start.h. RFC 1952 (gzip), RFC 8878 (zstd), "The .xz File Format"
 * 1.2, bzip2's first block, PKWARE's APPNOTE 6.3 (zip). */
#include "io/files/text_start.h"

#include <string.h>

static bool begins(const void *bytes, size_t length, const char *start, size_t count) {
    return length >= count && memcmp(bytes, start, count) == 0;
}

const Packing *packing_of(const void *bytes, size_t length) {
    static const struct {
        const char *start;
        size_t length;
        Packing packing;
    } KNOWN[] = {{"\x1f\x8b", 2, {"gzip", "gzip -d"}},
                 {"\x28\xb5\x2f\xfd", 4, {"zstd", "zstd -d"}},
                 {"\xfd\x37zXZ", 5, {"xz", "xz -d"}},
                 {"PK\x03\x04", 4, {"zip", "unzip"}}};
    static const Packing BZIP2 = {"bzip2", "bzip2 -d"};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (begins(bytes, length, KNOWN[i].start, KNOWN[i].length))
            return &KNOWN[i].packing;
    const bool packed = begins(bytes, length, "BZh", 3) && length >= 10 &&
                        memcmp((const char *)bytes + 4, "1AY&SY", 6) == 0;
    return packed ? &BZIP2 : NULL; /* between the two is a digit */
}

Status text_start_check(const char *path, const char *text, size_t length, Diag *diag) {
    const Packing *packing = packing_of(text, length);
    if (packing) {
        diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                  "expected text, found a file compressed by %s", packing->name);
        diag_hint(diag, "unpack it (`%s`)", packing->unpack);
        return STATUS_FORMAT;
    }
    if (!begins(text, length, "\xff\xfe", 2) && !begins(text, length, "\xfe\xff", 2))
        return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
              "expected text in UTF-8, found UTF-16");
    diag_hint(diag, "convert the file to UTF-8 (`iconv -f UTF-16 -t UTF-8`)");
    return STATUS_FORMAT;
}
