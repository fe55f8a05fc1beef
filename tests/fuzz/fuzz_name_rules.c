/* Name maps: the rules, and what they make of a few tensors. */
#include "io/formats/name_rules.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Tensors as a ViT by hand has them. */
static Checkpoint *make_checkpoint(Diag *diag) {
    static const char *const NAMES[] = {"blocks.0.attn.qkv.weight", "head.bias",
                                        "pos_embed"};
    static const int64_t DIM[][3] = {{6, 2, 0}, {4, 0, 0}, {1, 3, 2}};
    static const int RANK[] = {2, 1, 3};
    Checkpoint *checkpoint = checkpoint_create("own.pt", 3);
    for (int i = 0; i < 3; i++) {
        NamedTensor *named = &checkpoint->tensors[checkpoint->count];
        named->name = NAMES[i];
        if (tensor_create(&named->tensor, DTYPE_F32, RANK[i], DIM[i], diag) == STATUS_OK)
            checkpoint->count++;
    }
    return checkpoint;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Diag *diag = diag_create();
    NameRules *rules;
    const Status status =
        name_rules_parse(&rules, "fuzz.yaml", (const char *)data, size, diag);
    if (status == STATUS_OK) {
        Checkpoint *own = make_checkpoint(diag), *renamed;
        if (name_rules_apply(&renamed, rules, own, diag) == STATUS_OK) {
            fuzz_checkpoint(renamed);
            checkpoint_destroy(renamed);
        }
        checkpoint_destroy(own);
        name_rules_destroy(rules);
    }
    diag_destroy(diag);
    return 0;
}
