/* The list of formats. */
#include "io/formats/format.h"

#include <string.h>

#define MODEL_FORMAT(name) extern const ModelFormat model_format_##name;
#include "io/formats/formats.def"
#undef MODEL_FORMAT

static const ModelFormat *const FORMATS[] = {
#define MODEL_FORMAT(name) &model_format_##name,
#include "io/formats/formats.def"
#undef MODEL_FORMAT
    NULL};

const ModelFormat *const *model_format_list(void) {
    return FORMATS;
}

const ModelFormat *model_format_find(const char *name) {
    const ModelFormat *const *format = FORMATS;
    while (*format && strcmp((*format)->name, name) != 0) format++;
    return *format;
}
