/* Products: see exec/linalg/products.h. */
#include "exec/linalg/products.h"

#include "exec/linalg/onednn.h"
#include "exec/processor.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLE "COMPRESS_PRODUCTS"

/* Asked for where nothing but a graph is at hand; written before anything is computed. */
static Products chosen = PRODUCTS_PACKED;

Status products_choose(Products products, Diag *diag) {
    const char *given = getenv(VARIABLE);
    if (products == PRODUCTS_AUTO && given && *given) {
        if (strcmp(given, "onednn") == 0)
            products = PRODUCTS_ONEDNN;
        else if (strcmp(given, "packed") == 0)
            products = PRODUCTS_PACKED;
        else if (strcmp(given, "openblas") == 0)
            products = PRODUCTS_OPENBLAS;
        else
            return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                             "environment variable %s: expected openblas, onednn or "
                             "packed, found \"%s\"",
                             VARIABLE, given);
    }
    chosen = products == PRODUCTS_OPENBLAS ? PRODUCTS_OPENBLAS : PRODUCTS_PACKED;
    if (products != PRODUCTS_ONEDNN) return STATUS_OK;
    if (processor_fixed())
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "products by oneDNN cannot be fixed to processor level %s",
                         processor_name(processor_level()));
    if (!onednn_has(ONEDNN_F32)) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                  "there are no products by oneDNN here");
        diag_hint(diag, *onednn_library() ? "they need a processor with AVX-512"
                                          : "this program was built without oneDNN");
        return STATUS_USAGE;
    }
    chosen = PRODUCTS_ONEDNN;
    return STATUS_OK;
}

bool products_onednn(void) {
    return chosen == PRODUCTS_ONEDNN;
}

bool products_packed(void) {
    return chosen == PRODUCTS_PACKED;
}

const char *products_name(void) {
    if (products_packed()) return "packed weights";
    return products_onednn() ? onednn_library() : NULL;
}
